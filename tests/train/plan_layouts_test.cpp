// The planner's layouts are the partitions that ranks train with, without their maps.

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/halo.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/redistribution.hpp>

#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"

namespace rondo::train::plan_layouts_test {
namespace {

struct Pair {
  ValueLayout layout;
  Partition partition;
};

// Everything that a value can be on a grid, chains of stationary-W layers included.
std::vector<Pair> pairs_on(const tensor::Shape& extents, const ProcessGrid& grid) {
  std::vector<Pair> pairs = {
      {{.kind = SplitKind::sample}, by_sample(extents, grid.ranks())},
      {{.kind = SplitKind::group}, by_group(extents, grid)},
      {{.kind = SplitKind::channel}, by_channel(extents, grid)},
  };
  for (int d = 1; d <= grid.pr; ++d) {
    if (grid.pr % d != 0) continue;
    const int e = grid.pr / d;
    pairs.push_back({{.kind = SplitKind::space, .h = d, .w = e}, by_space(extents, grid, d, e)});
    const Partition once = output_of(by_channel(extents, grid), {d, e}, extents);
    pairs.push_back({turned({.kind = SplitKind::channel}, {d, e}), once});
    pairs.push_back({turned(turned({.kind = SplitKind::channel}, {d, e}), {d, e}),
                     output_of(once, {d, e}, extents)});
  }
  return pairs;
}

const std::vector<ProcessGrid> grids = {{1, 3}, {2, 2}, {3, 1}, {4, 2}, {6, 1}, {8, 1}};
const std::vector<tensor::Shape> shapes = {{16, 8, 8, 32}, {13, 7, 9, 11}, {2, 6, 6, 5}};

TEST(PlanLayoutsTest, HoldWhatThePartitionHolds) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) {
      for (const Pair& pair : pairs_on(shape, grid)) {
        for (int rank = 0; rank < grid.ranks(); ++rank) {
          EXPECT_EQ(box_of(pair.layout, shape, grid, rank), pair.partition.box_of(rank));
        }
      }
    }
  }
}

TEST(PlanLayoutsTest, KnowTheLargestBox) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) {
      for (const Pair& pair : pairs_on(shape, grid)) {
        std::int64_t largest = 0;
        for (const Box& box : pair.partition.boxes()) largest = std::max(largest, box.size());
        EXPECT_EQ(largest_box(pair.layout, shape, grid).size(), largest);
      }
    }
  }
}

// Of the ranks of the last group: it has most samples, and others may meet other blocks.
TEST(PlanLayoutsTest, ReceiveWhatRedistributionsReceive) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) {
      const std::vector<Pair> pairs = pairs_on(shape, grid);
      for (const Pair& from : pairs) {
        for (const Pair& to : pairs) {
          Messages most;
          for (int rank = grid.rank_at(grid.pc - 1, 0); rank < grid.ranks(); ++rank) {
            const Redistribution moves = redistribution(from.partition, to.partition, rank);
            most.words = std::max(most.words, moves.words_received());
            most.count = std::max(most.count, static_cast<std::int64_t>(moves.receives.size()));
          }
          const Messages said = redistribution_of(from.layout, to.layout, shape, grid);
          EXPECT_EQ(said.words, most.words);
          EXPECT_EQ(said.count, most.count);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rondo::train::plan_layouts_test
