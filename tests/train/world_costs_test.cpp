// The measured costs of a World's links and of computing on its ranks, and how ranks lie on nodes.
// No time is asserted but that of injected delays, which nothing can undercut, and that four ranks
// which share a core are slower than one.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>
#include <rondo/transport/world.hpp>

#include "benchmark/model_benchmark.hpp"
#include "plan/world_costs.hpp"
#include "support/world.hpp"

namespace rondo::train::world_costs_test {
namespace {

using rondo::test::World;

transport::WorldOptions slowed(int nodes) {
  transport::WorldOptions options = rondo::test::quick_options();
  options.fabric = {.name = "shm",
                    .fake_nodes = nodes,
                    .injected_latency = std::chrono::milliseconds(2),
                    .injected_bytes_per_second = 1e8};
  return options;
}

TEST(WorldCostsTest, MeasuresTheLinkBetweenNodesAndWithinThem) {
  World(4, slowed(2)).run([](transport::World& world) {
    const WorldCosts costs = measure_world(world);
    if (world.rank() != 0) return;
    EXPECT_GE(costs.fabric.alpha_seconds, 2e-3);
    // The larger size as a whole: where others use the machine, both numbers may be too high.
    constexpr double bytes = 512.0 * 1024.0;
    EXPECT_GE(costs.fabric.alpha_seconds + bytes / costs.fabric.bandwidth, 2e-3 + bytes / 1e8);
    EXPECT_GT(costs.node.alpha_seconds, 0.0);
    EXPECT_GT(costs.node.bandwidth, 0.0);
  });
}

TEST(WorldCostsTest, WhereThereIsOneKindOfLinkBothAreThat) {
  World(2, slowed(2)).run([](transport::World& world) {
    const WorldCosts costs = measure_world(world);
    if (world.rank() != 0) return;
    EXPECT_GE(costs.node.alpha_seconds, 2e-3);
    EXPECT_EQ(costs.node.bandwidth, costs.fabric.bandwidth);
  });
  World(3).run([](transport::World& world) {
    const WorldCosts costs = measure_world(world);
    EXPECT_EQ(costs.node.alpha_seconds, costs.fabric.alpha_seconds);
  });
}

TEST(WorldCostsTest, OneRankHasNothingToMeasure) {
  World(1).run([](transport::World& world) {
    EXPECT_EQ(measure_world(world).fabric.alpha_seconds, LinkCost{}.alpha_seconds);
  });
}

// All on one node; where nodes are alike, those of each; one where nodes differ, or ranks are dealt
// out in turn.
TEST(WorldCostsTest, RanksPerNodeAreEqualBlocks) {
  const std::pair<std::vector<int>, int> cases[] = {
      {{0}, 1},          {{0, 0, 0, 0}, 4},    {{0, 0, 1, 1, 2, 2}, 2}, {{0, 1, 2}, 1},
      {{0, 0, 0, 1}, 1}, {{0, 0, 0, 1, 1}, 1}, {{0, 1, 0, 1}, 1},       {{0, 1, 1, 0}, 1}};
  for (const auto& [nodes, expected] : cases) {
    std::vector<transport::RankInfo> ranks;
    for (const int node : nodes) ranks.push_back({.node = node});
    EXPECT_EQ(ranks_per_node(ranks), expected) << testing::PrintToString(nodes);
  }
}

// 4,000 threads of each of two ranks.
TEST(WorldCostsTest, ThreadsOfAHostShareItsCores) {
  World(2).run([](transport::World& world) {
    const double few = ranks_per_core(world, 4000);
    EXPECT_GT(few, 1.0);
    EXPECT_DOUBLE_EQ(ranks_per_core(world, 8000), 2.0 * few);
  });
}

double slowdown_of(transport::World& world, const Model& model) {
  return measure_slowdown(world, *make_slowdown_step(model, 4, 1, tensor::DataType::f32), 1);
}

TEST(SlowdownTest, ARankWithoutNeighboursHasNone) {
  World(1).run(
      [](transport::World& world) { EXPECT_EQ(slowdown_of(world, make_model("lenet5")), 1.0); });
}

// Four ranks for each core: they slow each other down as much as anybody else could. Many cores
// would need many ranks.
TEST(SlowdownTest, RanksThatShareCoresSlowEachOtherDown) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  if (cores > 8) GTEST_SKIP() << "there are " << cores << " cores";
  const int ranks = 4 * static_cast<int>(cores);
  std::vector<double> slowdowns(static_cast<std::size_t>(ranks));
  World(ranks, slowed(ranks)).run([&](transport::World& world) {
    slowdowns[static_cast<std::size_t>(world.rank())] = slowdown_of(world, make_model("lenet5"));
  });
  EXPECT_GT(slowdowns[0], 1.2);
  EXPECT_THAT(slowdowns, testing::Each(slowdowns[0]));
}

TEST(SlowdownTest, AStepOfAnImpossibleModelIsRefused) {
  Model model = make_model("lenet5");
  model.layers.back().inputs = {100};
  EXPECT_ANY_THROW((void)make_slowdown_step(model, 4, 1, tensor::DataType::f32));
}

}  // namespace
}  // namespace rondo::train::world_costs_test
