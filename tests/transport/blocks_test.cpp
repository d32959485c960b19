// Parts of blocks: even slices, cut on whole units, and copies of rows with gaps between them.

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "collective/blocks.hpp"

namespace rondo::transport::blocks_test {
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

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i);
  return data;
}

// Every range of a block of 4 rows of 5 bytes, 8 apart, against byte-by-byte arithmetic.
TEST(RowsTest, CopiesEveryRangeOutOfAndIntoABlock) {
  const std::vector<std::byte> strided = numbered(32);
  const ConstBlock from{strided.data(), ElementType::u8, 4, 5, 8};
  for (std::size_t begin = 0; begin <= 20; ++begin) {
    for (std::size_t bytes = 0; begin + bytes <= 20; ++bytes) {
      std::vector<std::byte> dense(bytes);
      copy_from_rows(dense.data(), from, begin, bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(dense[i], strided[(begin + i) / 5 * 8 + (begin + i) % 5]);
      }

      std::vector<std::byte> back(32);
      copy_into_rows({back.data(), ElementType::u8, 4, 5, 8}, begin, dense.data(), bytes);
      for (std::size_t i = 0; i < 20; ++i) {
        const bool inside = i >= begin && i < begin + bytes;
        ASSERT_EQ(back[i / 5 * 8 + i % 5], inside ? strided[i / 5 * 8 + i % 5] : std::byte{0});
      }
    }
  }
}

TEST(RowsTest, CopiesRowsAndLeavesTheGapsAlone) {
  const std::vector<std::byte> from = numbered(24);
  std::vector<std::byte> into(30, std::byte{0xEE});

  copy_rows({into.data(), ElementType::u8, 3, 4, 10}, {from.data(), ElementType::u8, 3, 4, 8}, 4,
            8);

  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 10; ++i) {
      const std::byte expected = row > 0 && i < 4 ? from[row * 8 + i] : std::byte{0xEE};
      EXPECT_EQ(into[row * 10 + i], expected);
    }
  }
}

}  // namespace
}  // namespace rondo::transport::blocks_test
