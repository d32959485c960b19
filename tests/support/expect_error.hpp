#pragma once

#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>

namespace rondo::test {

/// Expects `call` to throw an Error with this code, which names `rank` if one is given. Returns its
/// text.
inline std::string expect_error(transport::Errc code, const std::function<void()>& call,
                                int rank = -1) {
  try {
    call();
  } catch (const transport::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_TRUE(rank < 0 || error.detail().rank == rank) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

/// The error that waiting for `request` throws, if it throws one.
inline std::optional<transport::Error> error_of(transport::Request request) {
  try {
    request.wait();
  } catch (const transport::Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace rondo::test
