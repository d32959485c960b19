// Parts of blocks: even slices, cut on whole units; the parts of a team's threads; and copies of
// rows with gaps between them.

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "collective/blocks.hpp"
#include "collective/team_work.hpp"

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

/// Does what several threads would, one part after the other.
class PretendedTeam final : public Team {
 public:
  explicit PretendedTeam(int size) : size_(size) {}
  [[nodiscard]] int size() const noexcept override { return size_; }
  void run(void (*part)(void* context, int index), void* context) override {
    for (int i = 0; i < size_; ++i) part(context, i);
  }

 private:
  int size_;
};

TEST(TeamWorkTest, CutsOnCacheLinesAPartForEachThread) {
  PretendedTeam team(3);
  std::vector<std::size_t> cuts{0};

  for_parts(&team, 200'001, [&](const TeamPart& part) {
    EXPECT_EQ(part.thread, cuts.size() - 1);
    EXPECT_EQ(part.begin, cuts.back());
    EXPECT_EQ(part.begin % cache_line_bytes, 0U);
    cuts.push_back(part.end);
  });

  EXPECT_EQ(cuts.size(), 4U);
  EXPECT_EQ(cuts.back(), 200'001U);
}

TEST(TeamWorkTest, IsThatOfOneThreadWithoutATeamAndBelowTheThreshold) {
  PretendedTeam team(3);
  PretendedTeam single(1);
  const auto parts = [](Team* threads, std::size_t bytes) {
    std::size_t count = 0;
    for_parts(threads, bytes,
              [&](const TeamPart& part) { count += part.size() == bytes ? 1 : 100; });
    return count;
  };

  EXPECT_EQ(parts(nullptr, 1'000'000), 1U);
  EXPECT_EQ(parts(&single, 1'000'000), 1U);
  EXPECT_EQ(parts(&team, team_worthwhile_bytes - 1), 1U);
  EXPECT_EQ(parts(&team, team_worthwhile_bytes), 300U);
}

// Pieces of 0 to 999 bytes, each thread its third of all: every byte once.
TEST(TeamWorkTest, CoversEveryByteOfManyPiecesOnce) {
  PretendedTeam team(3);
  std::vector<std::vector<int>> visits;
  for (std::size_t bytes = 0; bytes < 1000; ++bytes) visits.emplace_back(bytes, 0);

  for_pieces(&team, [&](Pieces& pieces) {
    for (std::vector<int>& piece : visits) {
      pieces.next(piece.size(), [&](const Range& part) {
        for (std::size_t i = part.begin; i < part.end; ++i) piece[i] += 1;
      });
    }
  });

  for (const std::vector<int>& piece : visits) {
    EXPECT_EQ(std::ranges::count(piece, 1), static_cast<std::ptrdiff_t>(piece.size()));
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
      copy_from_rows(nullptr, dense.data(), from, begin, bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(dense[i], strided[(begin + i) / 5 * 8 + (begin + i) % 5]);
      }

      std::vector<std::byte> back(32);
      copy_into_rows(nullptr, {back.data(), ElementType::u8, 4, 5, 8}, begin, dense.data(), bytes);
      for (std::size_t i = 0; i < 20; ++i) {
        const bool inside = i >= begin && i < begin + bytes;
        ASSERT_EQ(back[i / 5 * 8 + i % 5], inside ? strided[i / 5 * 8 + i % 5] : std::byte{0});
      }
    }
  }
}

}  // namespace
}  // namespace rondo::transport::blocks_test
