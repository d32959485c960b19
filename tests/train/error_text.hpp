#pragma once

#include <string>

#include <gtest/gtest.h>

namespace rondo::test {

// What the E says that `call` throws; every message is one line.
template <class E, class Call>
std::string error_text(Call call) {
  try {
    static_cast<void>(call());
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace rondo::test
