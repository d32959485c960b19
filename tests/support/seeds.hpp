#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "support/sources.hpp"

namespace rondo::test {

/// Expects that the file `name` of tests/fuzz/seeds is `bytes`, so that no fuzzer begins with what
/// its harness refuses. Where RONDO_WRITE_SEEDS is set, the file is written before.
inline void expect_seed(const std::string& name, const std::string& bytes) {
  const std::filesystem::path file = sources() / "tests/fuzz/seeds" / name;
  if (std::getenv("RONDO_WRITE_SEEDS") != nullptr) {
    std::ofstream(file, std::ios::binary) << bytes;
  }
  std::ifstream stored(file, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stored), {}), bytes)
      << file << " is stale: run this test with RONDO_WRITE_SEEDS=1, and commit it";
}

}  // namespace rondo::test
