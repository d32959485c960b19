#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace rondo::test {

/// The text of the E that `call` throws; every message is one line. Compared with it, a matcher of
/// exceptions costs a compiler a matcher's classes for each call's own type.
template <class E>
std::string error_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace rondo::test
