// Collectives of groups that have several ranks on a node, simulated, where their times follow from
// closed forms.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/simulated_hierarchy.hpp"

namespace rondo::transport::simulated_hierarchy_test {
namespace {

using test::SimulatedCosts;
using test::SimulatedGroups;
using test::SimulatedHierarchy;
using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using Times = std::vector<double>;

constexpr std::size_t segment = std::size_t{1} << 20U;
constexpr std::size_t long_bytes = std::size_t{8} << 20U;
constexpr std::size_t long_share = std::size_t{1} << 20U;

// A second for a message, and one for 1024 bytes, also for the node's memory to read or write them;
// a quarter of a second for ranks of a node to wait for each other.
SimulatedCosts costs_with(std::size_t ranks_per_node) {
  return {.ranks_per_node = ranks_per_node,
          .between_nodes = {.latency = 1.0, .per_byte = 0x1p-10},
          .inside_node = {.latency = 0.25},
          .memory_per_byte = 0x1p-10};
}

// Blocks of two nodes of four ranks, where only the exchange of the shards through the nodes' ports
// takes time: 2 (N-1)/N of all bytes.
TEST(SimulatedHierarchyTest, RanksOfANodeShareItsPort) {
  const SimulatedCosts costs{.ranks_per_node = 4,
                             .between_nodes = {.latency = 0.0, .per_byte = 1e-6},
                             .inside_node = {.latency = 0.0}};
  SimulatedHierarchy ranks(8, costs, segment);
  const Times ends = ranks.allreduce(long_bytes, Times(8, 0.0));
  EXPECT_NEAR(*std::ranges::max_element(ends), 1e-6 * long_bytes, 1e-9);
}

// Between four nodes 64 KiB go by halving, of which each of two owners has a half: 2 (N-1)/N of all
// bytes pass a node's port.
TEST(SimulatedHierarchyTest, OwnersHalveWhatIsNeitherShortNorLong) {
  const SimulatedCosts costs{.ranks_per_node = 2,
                             .between_nodes = {.latency = 0.0, .per_byte = 1e-6},
                             .inside_node = {.latency = 0.0}};
  SimulatedHierarchy ranks(8, costs, segment);
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
  const SimulatedCosts costs{
      .ranks_per_node = 4, .inside_node = {.latency = 1.0}, .memory_per_byte = 1e-3};
  SimulatedHierarchy ranks(4, costs, segment);
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

}  // namespace
}  // namespace rondo::transport::simulated_hierarchy_test
