#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "hosts/job.hpp"

namespace rondo::test {

/// A test that needs hosts; it is left out, and says why, where there can be none.
class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* reason = std::getenv("RONDO_HOSTS_MISSING");
    if (reason != nullptr) GTEST_SKIP() << "left out: " << reason;
  }
};

}  // namespace rondo::test
