// Copies of parts of blocks with gaps between their rows.

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "collective/blocks.hpp"

namespace rondo::transport::rows_test {
namespace {

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
}  // namespace rondo::transport::rows_test
