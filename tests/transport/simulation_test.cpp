// Collectives over links with many ranks, simulated. `simulate-collectives check` does the same for
// all numbers of ranks up to 512, and for 1,024, 2,048 and 4,096.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_text.hpp"
#include "support/link_data.hpp"
#include "support/simulated_collectives.hpp"
#include "support/simulated_ranks.hpp"

namespace rondo::transport::simulation_test {
namespace {

using test::SimulatedRanks;

TEST(SimulatedCollectiveTest, UsesEveryElementOnceAndSendsWhatTheClosedFormSays) {
  std::vector<std::size_t> sizes{100};
  for (std::size_t ranks = 1; ranks <= 65; ++ranks) sizes.push_back(ranks);
  for (const test::SimulatedCollective& collective : test::simulated_collectives()) {
    for (const std::size_t ranks : sizes) {
      EXPECT_NO_THROW(collective.check(ranks)) << collective.name << " of " << ranks << " ranks";
    }
  }
}

class SimulatedTimeTest : public testing::Test {
 protected:
  // When the last rank is done.
  static double seconds(const SimulatedRanks::Options& options, const Algorithm& algorithm,
                        std::size_t ranks, std::size_t elements, double reduced_share = 0.0) {
    SimulatedRanks simulated(ranks, options);
    const test::PostedCall call(test::call_named("AllreduceInPlace"), ranks, elements);
    const std::vector<double> ends = simulated.run(algorithm, call.posted(), reduced_share);
    return *std::ranges::max_element(ends);
  }
};

TEST_F(SimulatedTimeTest, OfARingIsItsClosedForm) {
  SimulatedRanks::Options options;
  options.costs = {.ranks_per_node = 1,
                   .between_nodes = {.latency = 3.0, .per_byte = 0.25},
                   .per_reduced_byte = 0.5};
  // 16 elements for each rank: chunks of one line, 64 bytes.
  const double step = 3.0 + 64 * 0.25;
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::ring, 8, 128), 14 * step);
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::ring, 8, 128, 0.5), 14 * (step + 16));
}

TEST_F(SimulatedTimeTest, OfDoublingIsItsClosedForm) {
  SimulatedRanks::Options options;
  options.costs = {.ranks_per_node = 1, .between_nodes = {.latency = 3.0, .per_byte = 0.25}};
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::doubling_allreduce, 8, 4), 3 * (3.0 + 4));
}

// 8, 4 and 2 of 16 lines are sent and added, and 2, 4 and 8 are sent back.
TEST_F(SimulatedTimeTest, OfHalvingIsItsClosedForm) {
  SimulatedRanks::Options options;
  options.costs = {.ranks_per_node = 1,
                   .between_nodes = {.latency = 3.0, .per_byte = 0.25},
                   .per_reduced_byte = 0.5};
  const double sent = 2 * 14 * 64 * 0.25;
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::halving_allreduce, 8, 256), 6 * 3.0 + sent);
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::halving_allreduce, 8, 256, 0.5),
                   6 * 3.0 + sent + 14 * 64 * 0.5);
}

TEST_F(SimulatedTimeTest, RanksOfANodeShareItsPort) {
  SimulatedRanks::Options options;
  options.costs = {.ranks_per_node = 4,
                   .between_nodes = {.latency = 1.0, .per_byte = 1.0},
                   .inside_node = {.latency = 0.0, .per_byte = 0.0}};
  // Two nodes: in the last round of doubling all four ranks of a node send 16 bytes to the other.
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::doubling_allreduce, 8, 4), 1.0 + 4 * 16);
}

TEST_F(SimulatedTimeTest, MessagesInsideANodeShareItsMemory) {
  SimulatedRanks::Options options;
  options.costs = {.ranks_per_node = 2,
                   .inside_node = {.latency = 1.0, .per_byte = 0.0},
                   .memory_per_byte = 2.0};
  // Each of two ranks sends 16 bytes; the second waits until those of the first are moved.
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::doubling_allreduce, 2, 4), 2.0 * 16 + 1.0);
}

TEST_F(SimulatedTimeTest, GroupsOfShardOwnersRunAtTheSameTime) {
  SimulatedRanks::Options options;
  options.costs = {.ranks_per_node = 2, .between_nodes = {.latency = 3.0, .per_byte = 0.25}};
  options.groups = 2;
  // Two rings of four ranks each share the ports: while a message of one is under way, the port
  // sends one of the other. So the latency counts once, and 6 steps of two chunks of 64 bytes.
  EXPECT_DOUBLE_EQ(seconds(options, algorithms::ring, 8, 64), 3.0 + 2 * 6 * 16);
}

// A rank that posts nothing of what the others wait for.
TEST(SimulatedRanksTest, ThatWaitForEverAreNamed) {
  SimulatedRanks simulated(2, {});
  const test::PostedCall call(test::call_named("Broadcast"), 2, 1);
  std::vector<Posted> posted = call.posted();
  posted[0].fingerprint.root = 1;
  posted[1].fingerprint.root = 0;

  EXPECT_THAT(rondo::test::error_text<std::runtime_error>(
                  [&] { simulated.run(algorithms::tree_broadcast, posted); }),
              testing::HasSubstr("rank 0 waits for rank 1; rank 1 waits for rank 0"));
}

}  // namespace
}  // namespace rondo::transport::simulation_test
