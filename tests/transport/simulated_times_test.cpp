// Collectives of groups with several ranks on a node, exchanges and steps on grids, all simulated,
// where their times follow from closed forms.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/simulated_grid_step.hpp"
#include "support/simulated_hierarchy.hpp"

namespace rondo::transport::simulated_times_test {
namespace {

using test::simulate_grid_steps;
using test::SimulatedCosts;
using test::SimulatedExchange;
using test::SimulatedGrid;
using test::SimulatedGroups;
using test::SimulatedHierarchy;
using test::SimulatedPhase;
using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using Kind = SimulatedExchange::Kind;
using Times = std::vector<double>;

constexpr std::size_t segment = std::size_t{1} << 20U;
constexpr std::size_t long_bytes = std::size_t{8} << 20U;
constexpr std::size_t long_share = std::size_t{1} << 20U;

// A second for a message, and one for 1024 bytes, also for the node's memory to read or write them;
// a quarter of a second for ranks of a node to wait for each other.
constexpr SimulatedCosts costs_with(std::size_t ranks_per_node) {
  return {.ranks_per_node = ranks_per_node,
          .between_nodes = {.latency = 1.0, .per_byte = 0x1p-10},
          .inside_node = {.latency = 0.25},
          .memory_per_byte = 0x1p-10};
}
constexpr SimulatedCosts costs = costs_with(1);

// Blocks of two nodes of four ranks, where only the exchange of the shards through the nodes' ports
// takes time: 2 (N-1)/N of all bytes.
TEST(SimulatedHierarchyTest, RanksOfANodeShareItsPort) {
  const SimulatedCosts own{.ranks_per_node = 4,
                           .between_nodes = {.latency = 0.0, .per_byte = 1e-6},
                           .inside_node = {.latency = 0.0}};
  SimulatedHierarchy ranks(8, own, segment);
  const Times ends = ranks.allreduce(long_bytes, Times(8, 0.0));
  EXPECT_NEAR(*std::ranges::max_element(ends), 1e-6 * long_bytes, 1e-9);
}

// Between four nodes 64 KiB go by halving, of which each of two owners has a half: 2 (N-1)/N of all
// bytes pass a node's port.
TEST(SimulatedHierarchyTest, OwnersHalveWhatIsNeitherShortNorLong) {
  const SimulatedCosts own{.ranks_per_node = 2,
                           .between_nodes = {.latency = 0.0, .per_byte = 1e-6},
                           .inside_node = {.latency = 0.0}};
  SimulatedHierarchy ranks(8, own, segment);
  const Times ends = ranks.allreduce(65'536, Times(8, 0.0));
  EXPECT_NEAR(*std::ranges::max_element(ends), 1.5e-6 * 65'536, 1e-12);
}

// By doubling: three messages of all bytes. The slow rank finds there what the others have summed,
// and ends first; they wait for what it sends.
TEST(SimulatedHierarchyTest, OneSlowRankDelaysAll) {
  SimulatedHierarchy ranks(8, costs_with(1), segment);
  Times starts(8, 9.0);
  starts[5] = 27.0;

  const Times ends = ranks.allreduce(64, starts);

  EXPECT_DOUBLE_EQ(ends[5], 27.0);
  EXPECT_DOUBLE_EQ(ends[4], 27.0 + (1.0 + 0x1p-4));
  EXPECT_DOUBLE_EQ(*std::ranges::max_element(ends), 27.0 + 3.0 * (1.0 + 0x1p-4));
}

TEST(SimulatedHierarchyTest, ANodesRanksMoveTheirBytesTogether) {
  const SimulatedCosts own{
      .ranks_per_node = 4, .inside_node = {.latency = 1.0}, .memory_per_byte = 1e-3};
  SimulatedHierarchy ranks(4, own, segment);
  // The last comes at 5. Each of 4 inputs is read, each of 4 outputs written; two synchronisations.
  EXPECT_THAT(ranks.allreduce(1000, Times{0.0, 5.0, 2.0, 0.0}), Each(DoubleEq(5.0 + 8.0 + 2.0)));
}

// 1024 bytes are read or written three times in two groups, exchanged by the leaders one behind the
// other, and copied to two ranks in both groups.
TEST(SimulatedHierarchyTest, GroupsOfANodeShareItsMemoryAndItsPort) {
  SimulatedHierarchy ranks(8, costs_with(4), segment, {.size = 4, .stride = 2});
  const double reduced = 2 * 3.0 + 0.5;
  const double copied = 2 * 4.0 + 0.5;
  const double first = reduced + 2.0 + copied;
  const double second = reduced + 3.0 + copied;
  EXPECT_THAT(ranks.allreduce(1024, Times(8, 0.0)),
              ElementsAre(first, second, first, second, first, second, first, second));
}

// Two groups on two nodes each are as one.
TEST(SimulatedHierarchyTest, GroupsOnOtherNodesDoNotMeet) {
  for (const std::size_t bytes : {std::size_t{64}, long_bytes}) {
    SimulatedHierarchy one(4, costs_with(2), segment);
    SimulatedHierarchy two(8, costs_with(2), segment, {.size = 4});
    const Times alone = one.allreduce(bytes, Times{0, 1, 2, 3});
    Times expected = alone;
    expected.insert(expected.end(), alone.begin(), alone.end());
    EXPECT_EQ(two.allreduce(bytes, Times{0, 1, 2, 3, 0, 1, 2, 3}), expected);
  }
}

// With one rank on each node there are no stages.
TEST(SimulatedHierarchyTest, GroupsOfOwnersAreRings) {
  SimulatedHierarchy ranks(4, costs_with(1), segment);
  const std::vector<std::size_t> shares(4, 1024);
  EXPECT_THAT(ranks.allgather(shares, Times(4, 0.0)), Each(DoubleEq(3 * 2.0)));
  EXPECT_THAT(ranks.reduce_scatter(shares, Times(4, 6.0)), Each(DoubleEq(6.0 + 3 * 2.0)));
}

// 4 shares of 64 bytes: a node's are gathered, its leader gets 128 bytes, and all ranks copy all.
TEST(SimulatedHierarchyTest, LeadersGatherShortShares) {
  SimulatedHierarchy ranks(8, costs_with(2), segment, {.size = 4});
  const std::vector<std::size_t> shares(4, 64);
  EXPECT_THAT(ranks.allgather(shares, Times(8, 0.0)),
              Each(DoubleEq((0.25 + 0.5) + (1.0 + 0.125) + (0.5 + 0.5))));
}

// The leader reads 2 times 256 bytes and writes 256; two shares go to the other node, and two are
// read and written behind it.
TEST(SimulatedHierarchyTest, LeadersScatterShortSums) {
  SimulatedHierarchy ranks(8, costs_with(2), segment, {.size = 4});
  const std::vector<std::size_t> shares(4, 64);
  EXPECT_THAT(ranks.reduce_scatter(shares, Times(8, 0.0)),
              Each(DoubleEq((0.75 + 0.5) + (1.0 + 0.125) + (0.25 + 0.5))));
}

// Each owner's share takes 1024 s of its node's port, one behind the other.
TEST(SimulatedHierarchyTest, OwnersExchangeLongShares) {
  const std::vector<std::size_t> shares(4, long_share);
  SimulatedHierarchy gathers(4, costs_with(2), segment);
  const double on_node = 4096.0 + 0.5;
  EXPECT_THAT(gathers.allgather(shares, Times(4, 0.0)),
              Each(DoubleEq(on_node + (1.0 + 2 * 1024.0) + on_node)));

  SimulatedHierarchy scatters(4, costs_with(2), segment);
  const double reduced = 3 * 4096.0 + 0.5;
  EXPECT_THAT(scatters.reduce_scatter(shares, Times(4, 0.0)),
              ElementsAre(reduced + 1025.0, reduced + 2049.0, reduced + 1025.0, reduced + 2049.0));
}

TEST(SimulatedHierarchyTest, RefusesWhatDoesNotFit) {
  const auto make = [](std::size_t ranks, std::size_t ranks_per_node, SimulatedGroups groups) {
    const SimulatedHierarchy made(ranks, costs_with(ranks_per_node), segment, groups);
  };
  EXPECT_THROW(make(8, 3, {.size = 8}), std::invalid_argument);
  EXPECT_THROW(make(8, 1, {.size = 3}), std::invalid_argument);
  // Three and one rank on a node; every third rank of four on a node.
  EXPECT_THROW(make(12, 4, {.size = 3}), std::invalid_argument);
  EXPECT_THROW(make(12, 4, {.size = 4, .stride = 3}), std::invalid_argument);
}

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
}  // namespace rondo::transport::simulated_times_test
