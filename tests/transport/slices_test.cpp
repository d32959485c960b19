// Even slices, cut on whole units.

#include <gtest/gtest.h>

#include "collective/blocks.hpp"

namespace rondo::transport::slices_test {
namespace {

TEST(SliceTest, CoversEverythingOnceForAllRanksAndSizes) {
  for (std::size_t parts = 1; parts <= 64; ++parts) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 63U, 64U, 65U, 1000U, 4096U, 10007U}) {
      std::size_t end = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const Range range = slice(count, parts, i, 16);
        ASSERT_EQ(range.begin, end);
        ASSERT_LE(range.begin, range.end);
        end = range.end;
      }
      ASSERT_EQ(end, count);
    }
  }
}

TEST(SliceTest, CutsOnWholeUnits) {
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(slice(10'007, 7, i, 16).begin % 16, 0U);
}

TEST(SliceTest, IsEvenToOneUnit) {
  for (std::size_t i = 0; i < 6; ++i) {
    const std::size_t size = slice(10'000, 6, i, 16).size();
    EXPECT_GE(size, 10'000 / 6 - 16);
    EXPECT_LE(size, 10'000 / 6 + 16);
  }
}

}  // namespace
}  // namespace rondo::transport::slices_test
