// Pooling and global averages of images that are split give what those of whole ones do.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/transport/world.hpp>

#include "grid/local_windows.hpp"
#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::pooling_on_grid_test {
namespace {

using rondo::test::World;
using test::Numbers;

// Pooling of images split in space, by sample or by channel gives what the unsplit one does.

constexpr auto max = tensor::PoolingKind::max;
constexpr auto average = tensor::PoolingKind::average;

// Averages of windows with 4, 6 or 9 pixels: their gradients are whole numbers for such dy.
constexpr float divisible = 36.0F;

std::vector<PoolingLayer> layers() {
  return {{.kind = max},
          {.kind = max, .window = 3, .stride = 2},
          {.kind = max, .window = 3, .stride = 2, .padding = 1},
          {.kind = max, .window = 3, .stride = 1, .padding = 1},
          {.kind = average},
          {.kind = average, .window = 3, .stride = 2, .padding = 1},
          {.kind = average, .window = 3, .stride = 1, .padding = 1}};
}

std::string describe(const PoolingLayer& layer) {
  return (layer.kind == max ? "max " : "average ") + std::to_string(layer.window) + " stride " +
         std::to_string(layer.stride) + " padding " + std::to_string(layer.padding);
}

/// Runs all layers on all ranks, where x lies as `lay(extents)` says.
template <class Lay>
void expect_agreement(ProcessGrid grid, tensor::Shape x, Numbers numbers, Lay lay) {
  tensor::Engine engine;
  std::vector<test::WholeLayer> wholes;
  for (const PoolingLayer& layer : layers()) {
    wholes.push_back(test::run_whole(engine, layer, x, numbers, divisible));
  }
  World(grid.ranks()).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    for (std::size_t i = 0; i < wholes.size(); ++i) {
      SCOPED_TRACE(describe(layers()[i]) + ", rank " + std::to_string(world.rank()));
      const Partition from = lay(x);
      const NodeLayout place{.x = from, .y = from.with_extents(wholes[i].y.shape())};
      const auto kernel = make_pooling_in_space(rank.context, layers()[i], place);
      const auto part = test::run_split(rank.context, *kernel, place, wholes[i]);
      test::expect_parts_of(wholes[i], part, numbers);
    }
  });
}

TEST(PoolingInSpaceTest, GivesTheBitsOfTheUnsplitOneOnWholeNumbers) {
  for (const auto& [h, w] : {std::pair(2, 1), {1, 2}, {3, 1}, {2, 2}, {1, 4}, {4, 1}, {2, 3}}) {
    for (const tensor::Shape& x : {tensor::Shape{1, 13, 9, 8}, tensor::Shape{3, 7, 12, 16}}) {
      const ProcessGrid grid{.pr = h * w};
      expect_agreement(grid, x, Numbers::whole,
                       [&](const auto& extents) { return by_space(extents, grid, h, w); });
    }
  }
}

TEST(PoolingInSpaceTest, ComesCloseOnRealNumbers) {
  const ProcessGrid grid{.pr = 2, .pc = 2};
  expect_agreement(grid, {3, 9, 13, 16}, Numbers::real,
                   [&](const auto& extents) { return by_space(extents, grid, 2, 1); });
}

TEST(PoolingInSpaceTest, GivesEveryHolderOfABlockItsWholeGradient) {
  const ProcessGrid grid{.pr = 4};
  expect_agreement(grid, {2, 9, 7, 8}, Numbers::whole,
                   [&](const auto& extents) { return on_grid(extents, grid, {.h = 2}); });
}

TEST(PoolingInSpaceTest, TilesOfSomeChannelsExchangeThoseAlone) {
  const ProcessGrid grid{.pr = 4};
  for (const Parts& parts : {Parts{.h = 2, .c = 2}, Parts{.w = 2, .c = 2}}) {
    expect_agreement(grid, {2, 9, 12, 32}, Numbers::whole,
                     [&](const auto& extents) { return on_grid(extents, grid, parts); });
  }
}

TEST(PoolingInSpaceTest, LeavesOutTheGradientOfTheModelsInput) {
  const ProcessGrid grid{.pr = 2};
  const Partition x = by_space({1, 8, 8, 8}, grid, 2, 1);
  World(grid.ranks()).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const NodeLayout place{.x = x, .y = x};
    const PoolingLayer layer{.window = 3, .stride = 1, .padding = 1};
    const auto kernel = make_pooling_in_space(rank.context, layer, place);
    tensor::Tensor part(x.box_of(world.rank()).shape());
    kernel->forward_training({.x = part.view(), .y = part.view()}, {});
    const auto before = world.counters().sent_messages;

    kernel->backward_input({.dy = part.view()});

    EXPECT_EQ(world.counters().sent_messages, before);
  });
}

TEST(PoolingInSpaceTest, FollowsAnyOtherLayout) {
  const ProcessGrid grid{.pr = 2, .pc = 2};
  const tensor::Shape x{3, 9, 7, 32};
  expect_agreement(grid, x, Numbers::whole,
                   [&](const auto& extents) { return by_channel(extents, grid); });
  expect_agreement(grid, x, Numbers::whole,
                   [&](const auto& extents) { return by_sample(extents, grid.ranks()); });
  expect_agreement(grid, x, Numbers::whole,
                   [&](const auto& extents) { return by_replica(extents, grid); });
}

TEST(HaloReturnTest, SendsBackWhatTheHaloBrought) {
  const tensor::Shape x{2, 9, 8, 4};
  for (const auto& [h, w] : {std::pair(2, 1), {2, 3}, {3, 2}}) {
    const Partition home = by_space(x, {.pr = h * w}, h, w);
    const Windows windows{{.kernel = 3, .before = 1, .after = 1},
                          {.kernel = 5, .before = 2, .after = 2}};
    const std::vector<Box> needs = forward_needs(home, home, windows);
    for (int rank = 0; rank < home.ranks(); ++rank) {
      const Redistribution there = redistribution(home, needs, rank);
      const Redistribution back = halo_return(home, needs, rank);

      EXPECT_THAT(back.sends, testing::UnorderedElementsAreArray(there.receives));
      EXPECT_THAT(back.receives, testing::UnorderedElementsAreArray(there.sends));
      EXPECT_TRUE(std::ranges::is_sorted(back.receives, {}, &Transfer::peer));
    }
  }
}

// The mean of every channel of images that are split gives what that of whole ones does.

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
    for (const int replicas : {1, 2}) {
      for (const std::int64_t n : {1, 3}) {
        for (const auto& [h, w] : {std::pair(2, 1), {1, 2}, {3, 1}, {1, 3}}) {
          const ProcessGrid grid{.pr = h * w, .pc = replicas};
          expect_agreement(grid, by_space({n, 7, 9, 16}, grid, h, w),
                           by_replica({n, 1, 1, 16}, grid), numbers);
        }
      }
    }
  }
}

TEST(GlobalAverageOnGridTest, PixelsOfSeveralHoldersCountOnce) {
  const ProcessGrid grid{.pr = 4};
  expect_agreement(grid, on_grid({2, 7, 5, 8}, grid, {.h = 2}), by_replica({2, 1, 1, 8}, grid),
                   Numbers::whole);
}

TEST(GlobalAverageOnGridTest, TilesOfSomeChannelsGiveAllMeansToEveryRank) {
  const ProcessGrid grid{.pr = 4, .pc = 2};
  for (const Parts& parts : {Parts{.h = 2, .c = 2}, Parts{.w = 2, .c = 2}}) {
    expect_agreement(grid, on_grid({3, 7, 5, 9}, grid, parts), by_replica({3, 1, 1, 9}, grid),
                     Numbers::whole);
  }
}

TEST(GlobalAverageOnGridTest, RanksWithoutPixelsHaveTheMeansAllTheSame) {
  const ProcessGrid grid{.pr = 4};
  expect_agreement(grid, by_space({2, 2, 2, 8}, grid, 4, 1), by_replica({2, 1, 1, 8}, grid),
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
                           .y = by_replica({2, 1, 1, 8}, grid)};
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
}  // namespace rondo::train::pooling_on_grid_test
