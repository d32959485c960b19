// What a World's links are measured to cost. No time is asserted but that of injected delays, which
// nothing can undercut.

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

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
    const WorldCosts costs = measure_world(world, 1);
    if (world.rank() != 0) return;
    EXPECT_GE(costs.fabric.alpha_seconds, 2e-3);
    // Of the larger size as a whole: where others use the machine, both numbers may be too high.
    constexpr double bytes = 512.0 * 1024.0;
    EXPECT_GE(costs.fabric.alpha_seconds + bytes / costs.fabric.bandwidth, 2e-3 + bytes / 1e8);
    EXPECT_GT(costs.node.alpha_seconds, 0.0);
    EXPECT_GT(costs.node.bandwidth, 0.0);
  });
}

TEST(WorldCostsTest, WhereThereIsOneKindOfLinkBothAreThat) {
  World(2, slowed(2)).run([](transport::World& world) {
    const WorldCosts costs = measure_world(world, 1);
    if (world.rank() != 0) return;
    EXPECT_GE(costs.node.alpha_seconds, 2e-3);
    EXPECT_EQ(costs.node.bandwidth, costs.fabric.bandwidth);
  });
  World(3).run([](transport::World& world) {
    const WorldCosts costs = measure_world(world, 1);
    EXPECT_EQ(costs.node.alpha_seconds, costs.fabric.alpha_seconds);
  });
}

TEST(WorldCostsTest, OneRankHasNothingToMeasure) {
  World(1).run([](transport::World& world) {
    EXPECT_EQ(measure_world(world, 1).fabric.alpha_seconds, LinkCost{}.alpha_seconds);
  });
}

// 4,000 threads of each of two ranks.
TEST(WorldCostsTest, ThreadsOfAHostShareItsCores) {
  World(2).run([](transport::World& world) {
    const double few = measure_world(world, 4000).ranks_per_core;
    const double many = measure_world(world, 8000).ranks_per_core;
    EXPECT_GT(few, 1.0);
    EXPECT_DOUBLE_EQ(many, 2.0 * few);
  });
}

}  // namespace
}  // namespace rondo::train::world_costs_test
