// How arrays are cut over ranks, and the blocks of layers that are split over channels and
// filters.

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/partition.hpp>

#include "support/error_text.hpp"
#include "train/layouts.hpp"

namespace rondo::train::partition_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// How arrays are cut and who holds which block, over all small cases.

constexpr tensor::Shape array{.n = 4, .h = 6, .w = 5, .c = 7};

TEST(EvenRangeTest, PartsAreAdjacentAndDifferByOneAtMostAndTheLastIsTheLargest) {
  for (std::int64_t total = 0; total <= 40; ++total) {
    for (int parts = 1; parts <= 16; ++parts) {
      std::int64_t next = 0;
      for (int part = 0; part < parts; ++part) {
        const Range range = even_range(total, parts, part);
        ASSERT_EQ(range.first, next);
        ASSERT_GE(range.size(), total / parts);
        ASSERT_LE(range.size(), (total + parts - 1) / parts);
        ASSERT_GE(range.size(), even_range(total, parts, 0).size());
        ASSERT_LE(range.size(), even_range(total, parts, parts - 1).size());
        next = range.last;
      }
      ASSERT_EQ(next, total);
    }
  }
}

TEST(EvenRangeTest, FinerPartsLieWithinCoarserOnes) {
  for (std::int64_t total = 0; total <= 40; ++total) {
    for (int coarse = 1; coarse <= 6; ++coarse) {
      for (int within = 1; within <= 6; ++within) {
        for (int part = 0; part < coarse; ++part) {
          const Range whole_part = even_range(total, coarse, part);
          const int fine = coarse * within;
          ASSERT_EQ(even_range(total, fine, part * within).first, whole_part.first);
          ASSERT_EQ(even_range(total, fine, part * within + within - 1).last, whole_part.last);
        }
      }
    }
  }
}

TEST(PartitionTest, EveryElementIsHeldAsOftenAsThereAreReplicas) {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    for (const tensor::Shape& extents : test::small_arrays()) {
      for (const auto& [name, partition] : test::layouts_of(extents, ranks)) {
        test::ElementArray<int> holders(extents);
        for (const Box& box : partition.boxes()) {
          test::for_each_element(box, [&](auto... index) { ++holders.at(index...); });
        }
        ASSERT_THAT(holders.values(), Each(partition.holders())) << name;
      }
    }
  }
}

TEST(PartitionTest, FindsTheRanksOfABlock) {
  for (const auto& [name, partition] : test::layouts_of(array, 12)) {
    for (int block = 0; block < partition.blocks(); ++block) {
      ASSERT_EQ(partition.ranks_of(block).size(), static_cast<std::size_t>(partition.holders()));
      ASSERT_TRUE(std::ranges::is_sorted(partition.ranks_of(block)));
      for (const int rank : partition.ranks_of(block)) {
        ASSERT_EQ(partition.block_of(rank), block) << name;
      }
    }
  }
}

TEST(PartitionTest, NumbersBlocksWithChannelsFastest) {
  const Partition partition(array, {.n = 2, .h = 2, .w = 1, .c = 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(partition.box(5), (Box{{2, 4}, {0, 3}, {0, 5}, {3, 7}}));
  EXPECT_EQ(partition.box(2), (Box{{0, 2}, {3, 6}, {0, 5}, {0, 3}}));
}

TEST(PartitionTest, KeepsSamplesOfARankWithinThoseOfItsGroup) {
  for (std::int64_t samples = 0; samples <= 26; ++samples) {
    for (const ProcessGrid& grid : test::grids_of(12)) {
      const tensor::Shape extents{.n = samples, .h = 1, .w = 1, .c = 12};
      const Partition alone = by_sample(extents, 12);
      const Partition together = by_channel(extents, grid);
      for (int rank = 0; rank < 12; ++rank) {
        ASSERT_TRUE(together.box_of(rank).n.contains(alone.box_of(rank).n));
      }
    }
  }
}

TEST(PartitionTest, CutsImagesByPosition) {
  const Partition partition = by_space(array, {.pr = 4, .pc = 2}, 2, 2);
  EXPECT_EQ(partition.box_of(5), (Box{{2, 4}, {0, 3}, {2, 5}, {0, 7}}));
  EXPECT_EQ(partition.box_of(2), (Box{{0, 2}, {3, 6}, {0, 2}, {0, 7}}));
}

TEST(PartitionTest, GivesAdjacentRanksTheSameWhereBlocksAreFew) {
  const Partition partition = on_grid(array, {.pr = 4, .pc = 2}, {.c = 2});
  EXPECT_EQ(partition.holders(), 2);
  EXPECT_THAT(partition.ranks_of(1), ElementsAre(2, 3));
  EXPECT_THAT(partition.ranks_of(2), ElementsAre(4, 5));
}

TEST(PartitionTest, KeepsCutsAndMapForAnotherArray) {
  const Partition x = by_channel(array, {.pr = 3, .pc = 2});
  const Partition y = x.with_extents({.n = 4, .h = 3, .w = 3, .c = 12});
  EXPECT_EQ(y, by_channel({.n = 4, .h = 3, .w = 3, .c = 12}, {.pr = 3, .pc = 2}));
}

TEST(PartitionTest, RefusesMapsThatLeaveOutABlock) {
  EXPECT_THAT(
      rondo::test::error_text<std::invalid_argument>([] { Partition(array, {.n = 2}, {1, 1}); }),
      HasSubstr("block 0 is held by 0 ranks instead of 1"));
  EXPECT_THAT(
      rondo::test::error_text<std::invalid_argument>([] { Partition(array, {.n = 2}, {0, 2}); }),
      HasSubstr("rank 1 holds block 2 of 2"));
  EXPECT_THAT(
      rondo::test::error_text<std::invalid_argument>([] { Partition(array, {.n = 2}, {0, 1, 0}); }),
      HasSubstr("2 blocks cannot be held equally often by 3 ranks"));
}

TEST(PartitionTest, RefusesImpossibleCutsAndGrids) {
  EXPECT_THROW(Partition(array, {.n = 0}, {0}), std::invalid_argument);
  EXPECT_THROW(Partition({.n = -1}, {}, {0}), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(by_sample(array, 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(on_grid(array, {.pr = 4}, {.c = 3})), std::invalid_argument);
}

TEST(PartitionTest, RefusesRanksAndBlocksThatAreNotThere) {
  const Partition partition = by_sample(array, 2);
  EXPECT_THROW(static_cast<void>(partition.box_of(2)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(partition.ranks_of(-1)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(partition.box(2)), std::out_of_range);
}

// Stationary-X, -Y and -W: where ranks stand, and how their outputs lie.

constexpr tensor::Shape input{.n = 4, .h = 3, .w = 3, .c = 13};
constexpr tensor::Shape output{.n = 4, .h = 2, .w = 2, .c = 17};

/// Groups of p_C x p_F ranks, `pc` of them.
struct Case {
  ChannelGrid grid;
  int pc;

  [[nodiscard]] Partition x() const { return by_channel(input, {.pr = grid.ranks(), .pc = pc}); }
  [[nodiscard]] Partition y() const { return output_of(x(), grid, output); }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int channels = 1; channels <= 4; ++channels) {
    for (int filters = 1; filters <= 4; ++filters) {
      for (int pc = 1; pc <= 3; ++pc) all.push_back({{channels, filters}, pc});
    }
  }
  return all;
}

TEST(ChannelGridTest, RankIsPlacedByItsBlocksOfInputAndOutput) {
  for (const Case& c : cases()) {
    for (int rank = 0; rank < c.x().ranks(); ++rank) {
      const auto [i_c, i_f] = position_of(c.x(), c.grid, rank);
      const int p = c.grid.ranks();
      ASSERT_EQ(c.x().box_of(rank).c, even_range(input.c, p, i_c * c.grid.filters + i_f));
      ASSERT_EQ(c.y().box_of(rank).c, even_range(output.c, p, i_f * c.grid.channels + i_c));
      ASSERT_EQ(c.y().box_of(rank).n, c.x().box_of(rank).n);
    }
  }
}

TEST(ChannelGridTest, GathererConcatenatesItsPeersInTheOrderOfFilters) {
  for (const Case& c : cases()) {
    std::map<std::pair<std::int64_t, int>, std::int64_t> next;  // by samples and i_C
    for (int rank = 0; rank < c.x().ranks(); ++rank) {
      const auto [i_c, i_f] = position_of(c.x(), c.grid, rank);
      const Box gathered = gathered_input(c.x(), c.grid, rank);
      const Range own = c.x().box_of(rank).c;
      const auto entry = next.try_emplace({gathered.n.first, i_c}, gathered.c.first).first;
      ASSERT_EQ(own.first, entry->second);
      ASSERT_EQ(i_f == c.grid.filters - 1, own.last == gathered.c.last);
      entry->second = own.last;
    }
  }
}

TEST(ChannelGridTest, ReducersCutTheirPartialSumsInTheOrderOfChannels) {
  for (const Case& c : cases()) {
    std::map<std::pair<std::int64_t, int>, std::int64_t> next;  // by samples and i_F
    for (int rank = 0; rank < c.x().ranks(); ++rank) {
      const auto [i_c, i_f] = position_of(c.x(), c.grid, rank);
      const Box partial = partial_output(c.x(), c.grid, output, rank);
      const Range own = c.y().box_of(rank).c;
      const auto entry = next.try_emplace({partial.n.first, i_f}, partial.c.first).first;
      ASSERT_EQ(own.first, entry->second);
      ASSERT_EQ(i_c == c.grid.channels - 1, own.last == partial.c.last);
      entry->second = own.last;
    }
  }
}

TEST(ChannelGridTest, TwoLayersLeadBackToTheFirstLayout) {
  for (const Case& c : cases()) {
    const ChannelGrid transposed{.channels = c.grid.filters, .filters = c.grid.channels};
    const Partition back = output_of(c.y(), transposed, input);
    ASSERT_EQ(back, c.x());
    const Partition third = output_of(back, c.grid, output);
    ASSERT_EQ(third, c.y());
  }
}

TEST(ChannelGridTest, RefusesInputsInAnotherNumberOfParts) {
  const Partition x = by_channel(input, {.pr = 4});
  EXPECT_THROW(static_cast<void>(output_of(x, {.channels = 2, .filters = 3}, output)),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(position_of(x, {.channels = -2, .filters = -2}, 0)),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::partition_test
