// The mean of every channel of images that are split gives what that of whole ones does.

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::global_average_on_grid_test {
namespace {

using rondo::test::World;
using test::Numbers;

void expect_agreement(ProcessGrid grid, const Partition& x, const Partition& y, Numbers numbers) {
  tensor::Engine engine;
  const auto whole = test::run_whole(engine, GlobalAveragePoolingLayer(), x.extents(), numbers);
  World(grid.ranks()).run([&](transport::World& world) {
    SCOPED_TRACE("rank " + std::to_string(world.rank()));
    test::GridRank rank(world, grid);
    const NodeLayout place{.x = x, .y = y};
    const auto kernel = make_global_average_on_grid(rank.context, place);
    test::expect_parts_of(whole, test::run_split(rank.context, *kernel, place, whole), numbers);
  });
}

TEST(GlobalAverageOnGridTest, MeansOfImagesSplitInSpaceAreThoseOfWholeOnes) {
  for (const Numbers numbers : {Numbers::whole, Numbers::real}) {
    for (const int groups : {1, 2}) {
      for (const std::int64_t n : {1, 3}) {
        for (const auto& [h, w] : {std::pair(2, 1), {1, 2}, {3, 1}, {1, 3}}) {
          const ProcessGrid grid{.pr = h * w, .pc = groups};
          expect_agreement(grid, by_space({n, 7, 9, 16}, grid, h, w), by_group({n, 1, 1, 16}, grid),
                           numbers);
        }
      }
    }
  }
}

TEST(GlobalAverageOnGridTest, PixelsOfSeveralHoldersCountOnce) {
  const ProcessGrid grid{.pr = 4};
  expect_agreement(grid, on_grid({2, 7, 5, 8}, grid, {.h = 2}), by_group({2, 1, 1, 8}, grid),
                   Numbers::whole);
}

TEST(GlobalAverageOnGridTest, RanksWithoutPixelsHaveTheMeansAllTheSame) {
  const ProcessGrid grid{.pr = 4};
  expect_agreement(grid, by_space({2, 2, 2, 8}, grid, 4, 1), by_group({2, 1, 1, 8}, grid),
                   Numbers::whole);
}

TEST(GlobalAverageOnGridTest, FollowsAnyOtherLayout) {
  const ProcessGrid grid{.pr = 2, .pc = 2};
  const tensor::Shape x{3, 7, 5, 32};
  const tensor::Shape y{3, 1, 1, 32};
  expect_agreement(grid, by_channel(x, grid), by_channel(y, grid), Numbers::whole);
  expect_agreement(grid, by_sample(x, 4), by_sample(y, 4), Numbers::whole);
}

TEST(GlobalAverageOnGridTest, LeavesOutTheGradientOfTheModelsInput) {
  const ProcessGrid grid{.pr = 2};
  World(2).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const NodeLayout place{.x = by_space({2, 4, 4, 8}, grid, 2, 1),
                           .y = by_group({2, 1, 1, 8}, grid)};
    tensor::Tensor dy({2, 1, 1, 8});
    EXPECT_NO_THROW(
        make_global_average_on_grid(rank.context, place)->backward_input({.dy = dy.view()}));
  });
}

TEST(GlobalAverageOnGridTest, RefusesMeansThatLieElsewhere) {
  const ProcessGrid grid{.pr = 2};
  World(2).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const NodeLayout place{.x = by_space({2, 4, 4, 8}, grid, 2, 1),
                           .y = by_sample({2, 1, 1, 8}, 2)};
    EXPECT_THROW(static_cast<void>(make_global_average_on_grid(rank.context, place)),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::train::global_average_on_grid_test
