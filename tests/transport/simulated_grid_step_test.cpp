// Simulated steps on grids, where their times follow from closed forms.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/simulated_grid_step.hpp"

namespace rondo::transport::simulated_grid_step_test {
namespace {

using test::simulate_grid_steps;
using test::SimulatedCosts;
using test::SimulatedExchange;
using test::SimulatedGrid;
using test::SimulatedPhase;
using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using Kind = SimulatedExchange::Kind;

constexpr std::size_t segment = std::size_t{1} << 20U;

// A second for a message, and one for 1024 bytes.
constexpr SimulatedCosts costs{.between_nodes = {.latency = 1.0, .per_byte = 0x1p-10}};

// Two ranks that send each other 512 bytes: a second and a half.
SimulatedExchange between_two() {
  return {.kind = Kind::messages, .groups = {.size = 2}, .bytes = {0, 512, 512, 0}};
}

std::vector<double> steps_of(std::size_t ranks, const std::vector<SimulatedPhase>& phases,
                             std::size_t steps = 1) {
  const std::vector<double> equal_speed(ranks, 1.0);
  return simulate_grid_steps(ranks, costs, segment, phases, 0.0, equal_speed, steps);
}

// The one in the middle receives two messages, whose latencies overlap; their bytes do not.
TEST(SimulatedGridTest, LatenciesOfNeighboursOverlap) {
  SimulatedGrid grid(3, costs, segment);
  const SimulatedExchange halo{.groups = {.size = 3}, .bytes = {0, 512, 0, 512, 0, 512, 0, 512, 0}};
  EXPECT_DOUBLE_EQ(grid.run(halo, std::vector<double>(3, 0.0))[1], 1.0 + 0.5 + 0.5);
}

TEST(SimulatedGridTest, GroupsExchangeAtTheSameTime) {
  for (const std::size_t stride : {1U, 2U, 4U}) {
    SimulatedGrid grid(8, costs, segment);
    SimulatedExchange pairs = between_two();
    pairs.groups.stride = stride;
    EXPECT_THAT(grid.run(pairs, std::vector<double>(8, 0.0)), Each(DoubleEq(1.5)));
  }
}

TEST(SimulatedGridTest, MembersOfAGroupAreItsStrideApart) {
  SimulatedGrid grid(8, costs, segment);
  SimulatedExchange pairs = between_two();
  pairs.groups.stride = 2;
  // Rank 3 is late, and rank 1 waits for it.
  EXPECT_THAT(grid.run(pairs, std::vector<double>{0, 0, 0, 5, 0, 0, 0, 0}),
              ElementsAre(1.5, 6.5, 1.5, 5, 1.5, 1.5, 1.5, 1.5));
}

TEST(SimulatedGridStepTest, ComputesBehindAnExchange) {
  EXPECT_THAT(steps_of(2, {{.exchange = between_two(), .seconds = 10.0}}, 2),
              ElementsAre(11.5, 23.0));
}

TEST(SimulatedGridStepTest, ComputesBesideAnExchange) {
  const auto seconds_of = [](double computing) {
    return steps_of(2, {{.exchange = between_two(), .beside = true, .seconds = computing}})[0];
  };
  EXPECT_DOUBLE_EQ(seconds_of(10.0), 10.0);
  EXPECT_DOUBLE_EQ(seconds_of(1.0), 1.5);
}

TEST(SimulatedGridStepTest, GradientsAreReducedMeanwhile) {
  const SimulatedExchange sum{Kind::allreduce, {.size = 2, .stride = 2}, {1024}};
  const SimulatedPhase gradients{.seconds = 1.0, .reduction = sum};
  EXPECT_THAT(steps_of(4, {gradients, {.seconds = 9.0}}), ElementsAre(10.0));
  EXPECT_THAT(steps_of(4, {gradients}), ElementsAre(1.0 + 2.0));
  // One after another.
  EXPECT_THAT(steps_of(4, {gradients, gradients}), ElementsAre(1.0 + 2.0 + 2.0));
}

// The port takes a second for a reduction and half of one for an exchange.
TEST(SimulatedGridStepTest, ExchangesAndReductionsLeaveAPortOneBehindTheOther) {
  const SimulatedExchange sum{Kind::allreduce, {.size = 2, .stride = 2}, {1024}};
  const SimulatedPhase gradients{.seconds = 1.0, .reduction = sum};
  const SimulatedPhase exchange{.exchange = between_two()};
  // The reduction is first when both are posted at the same time.
  EXPECT_THAT(steps_of(4, {gradients, exchange}), ElementsAre(1.0 + 1.0 + 1.5));
  EXPECT_THAT(steps_of(4, {gradients, {.seconds = 0.75}, exchange}), ElementsAre(1.0 + 1.0 + 1.5));
  EXPECT_THAT(steps_of(4, {gradients, {.seconds = 1.25}, exchange}), ElementsAre(2.25 + 1.5));
  const SimulatedPhase beside{
      .exchange = between_two(), .beside = true, .seconds = 0.25, .reduction = sum};
  EXPECT_THAT(steps_of(4, {beside}), ElementsAre(0.5 + 2.0));
  // Steps follow each other: the first exchange of the second one finds the port free.
  EXPECT_THAT(steps_of(4, {exchange, gradients}, 2), ElementsAre(4.5, 9.0));
}

// Two threads simulate it, and neither must be seen in the result.
TEST(SimulatedGridStepTest, EachRunHasTheSameResult) {
  const SimulatedExchange halo{.groups = {.size = 2}, .bytes = {0, 512, 512, 0}};
  const SimulatedExchange sum{Kind::allreduce, {.size = 4, .stride = 2}, {std::size_t{1} << 20U}};
  std::vector<SimulatedPhase> phases;
  for (const double seconds : {3.0, 40.0, 500.0, 0.0, 7.0}) {
    phases.push_back({.exchange = halo, .seconds = seconds});
    phases.push_back({.exchange = halo, .beside = true, .seconds = seconds, .reduction = sum});
  }
  const std::vector<double> slowness{1.0, 1.0, 1.5, 1.0, 2.0, 1.0, 1.0, 1.25};
  const auto run = [&] { return simulate_grid_steps(8, costs, segment, phases, 0.5, slowness, 3); };
  const std::vector<double> first = run();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run(), first);
}

TEST(SimulatedGridStepTest, AFailureEndsTheStep) {
  const SimulatedExchange sum{Kind::allreduce, {.size = 2, .stride = 2}, {1 << 20}};
  const SimulatedExchange wrong{.groups = {.size = 3}, .bytes = std::vector<std::size_t>(9, 512)};
  EXPECT_THROW(static_cast<void>(steps_of(4, {{.seconds = 1.0, .reduction = sum},
                                              {.exchange = between_two()},
                                              {.exchange = wrong}})),
               std::invalid_argument);
}

TEST(SimulatedGridStepTest, RanksWaitForASlowNeighbour) {
  const std::vector<SimulatedPhase> phases{
      {.seconds = 4.0}, {.exchange = between_two()}, {.seconds = 4.0}};
  const std::vector<double> slowness{1.0, 2.0};
  // Rank 1 comes to the exchange at 8, when rank 0 has sent.
  EXPECT_THAT(simulate_grid_steps(2, costs, segment, phases, 1.0, slowness, 2),
              ElementsAre(18.0, 36.0));
}

// The same, of which a quarter of a second inside a node, and one for the node's memory to read or
// write 1024 bytes.
SimulatedCosts costs_with(std::size_t ranks_per_node) {
  SimulatedCosts on_nodes = costs;
  on_nodes.ranks_per_node = ranks_per_node;
  on_nodes.inside_node = {.latency = 0.25};
  on_nodes.memory_per_byte = 0x1p-10;
  return on_nodes;
}

TEST(SimulatedGridTest, GroupsWithARankOnEachNodeShareItsPort) {
  SimulatedGrid grid(4, costs_with(2), segment);
  SimulatedExchange pairs = between_two();
  pairs.groups.stride = 2;
  EXPECT_THAT(grid.run(pairs, std::vector<double>(4, 0.0)), ElementsAre(1.5, 2.0, 1.5, 2.0));
}

TEST(SimulatedGridTest, MessagesOfAGroupGoInsideNodesAndBetweenThem) {
  SimulatedGrid grid(4, costs_with(2), segment);
  SimulatedExchange row{.groups = {.size = 4}, .bytes = std::vector<std::size_t>(16, 0)};
  row.bytes[0 * 4 + 1] = row.bytes[1 * 4 + 2] = 512;
  EXPECT_THAT(grid.run(row, std::vector<double>(4, 0.0)), ElementsAre(0.0, 0.25, 1.5, 0.0));
}

TEST(SimulatedGridStepTest, RefusesWhatDoesNotFit) {
  SimulatedGrid grid(3, costs, segment);
  EXPECT_THROW(static_cast<void>(grid.run(between_two(), std::vector<double>(3, 0.0))),
               std::invalid_argument);
  const SimulatedExchange sum{Kind::allreduce, {.size = 2}, {1024}};
  EXPECT_THROW(static_cast<void>(steps_of(3, {{.reduction = sum}})), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::transport::simulated_grid_step_test
