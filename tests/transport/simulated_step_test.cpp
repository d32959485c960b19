// Simulated training steps, where their times follow from closed forms.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/simulated_step.hpp"

namespace rondo::transport::simulated_step_test {
namespace {

using test::simulate_steps;
using test::SimulatedAllreduce;
using test::SimulatedCosts;
using test::SimulatedWork;

constexpr std::size_t segment = std::size_t{1} << 20U;
constexpr std::size_t long_bytes = std::size_t{8} << 20U;

std::vector<double> equal_speed(std::size_t ranks) { return std::vector<double>(ranks, 1.0); }

// A ring between nodes, whose segments hide the latency.
constexpr SimulatedCosts without_latency{.between_nodes = {.latency = 0.0, .per_byte = 1e-6},
                                         .inside_node = {.latency = 0.0}};
constexpr SimulatedCosts one_per_node{.between_nodes = {.latency = 1.0, .per_byte = 1e-6}};

double ring_seconds(std::size_t nodes, std::size_t bytes) {
  const auto share = static_cast<double>(bytes / nodes);
  return 2.0 * static_cast<double>(nodes - 1) * share * without_latency.between_nodes.per_byte;
}

TEST(SimulatedStepTest, WithoutBucketsOnlyComputes) {
  SimulatedAllreduce allreduce(4, one_per_node, segment);
  const SimulatedWork work{.backward_end = 10.0, .update_seconds = 1.0};
  EXPECT_THAT(simulate_steps(allreduce, work, equal_speed(4), 3),
              testing::ElementsAre(11.0, 22.0, 33.0));
}

TEST(SimulatedStepTest, AddsWhatBackwardDoesNotHide) {
  SimulatedAllreduce allreduce(8, without_latency, segment);
  const SimulatedWork work{.buckets = {{.final_seconds = 4.0, .bytes = long_bytes}},
                           .backward_end = 10.0,
                           .update_seconds = 1.0};
  const double reduced = ring_seconds(8, long_bytes);
  ASSERT_GT(4.0 + reduced, 10.0);
  EXPECT_NEAR(simulate_steps(allreduce, work, equal_speed(8), 1)[0], 4.0 + reduced + 1.0, 1e-9);
}

TEST(SimulatedStepTest, HidesWhatEndsBeforeBackward) {
  SimulatedAllreduce allreduce(8, one_per_node, segment);
  const SimulatedWork work{.buckets = {{.final_seconds = 4.0, .bytes = 64}},
                           .backward_end = 100.0,
                           .update_seconds = 1.0};
  EXPECT_DOUBLE_EQ(simulate_steps(allreduce, work, equal_speed(8), 1)[0], 101.0);
}

TEST(SimulatedStepTest, ReducesBucketsOneAfterAnother) {
  SimulatedAllreduce allreduce(8, without_latency, segment);
  const SimulatedWork work{.buckets = {{.final_seconds = 4.0, .bytes = long_bytes},
                                       {.final_seconds = 5.0, .bytes = long_bytes}},
                           .backward_end = 6.0};
  const double reduced = ring_seconds(8, long_bytes);
  EXPECT_NEAR(simulate_steps(allreduce, work, equal_speed(8), 1)[0], 4.0 + 2.0 * reduced, 1e-9);
}

// By doubling: three messages of all bytes. The slow rank finds there what the others have summed,
// and ends first; they wait for what it sends.
TEST(SimulatedStepTest, OneSlowRankDelaysAll) {
  SimulatedAllreduce allreduce(8, one_per_node, segment);
  std::vector<double> starts(8, 9.0);
  starts[5] = 27.0;
  const std::vector<double> ends = allreduce.run(64, starts);
  EXPECT_DOUBLE_EQ(ends[5], 27.0);
  EXPECT_DOUBLE_EQ(ends[4], 27.0 + (1.0 + 64e-6));
  EXPECT_DOUBLE_EQ(*std::ranges::max_element(ends), 27.0 + 3.0 * (1.0 + 64e-6));

  const SimulatedWork work{.buckets = {{.final_seconds = 9.0, .bytes = 64}},
                           .backward_end = 10.0,
                           .update_seconds = 1.0};
  std::vector<double> slowness = equal_speed(8);
  slowness[5] = 3.0;
  SimulatedAllreduce anew(8, one_per_node, segment);
  EXPECT_THAT(simulate_steps(anew, work, slowness, 2), testing::ElementsAre(33.0, 66.0));
}

// Blocks of two nodes of four ranks, where only the exchange of the shards through the nodes' ports
// takes time: 2 (N-1)/N of all bytes.
TEST(SimulatedStepTest, RanksOfANodeShareItsPort) {
  SimulatedCosts costs = without_latency;
  costs.ranks_per_node = 4;
  SimulatedAllreduce allreduce(8, costs, segment);
  const std::vector<double> starts(8, 0.0);
  const std::vector<double> ends = allreduce.run(long_bytes, starts);
  EXPECT_NEAR(*std::ranges::max_element(ends), ring_seconds(2, long_bytes), 1e-9);
}

TEST(SimulatedStepTest, ANodesRanksMoveTheirBytesTogether) {
  const SimulatedCosts costs{
      .ranks_per_node = 4, .inside_node = {.latency = 1.0}, .memory_per_byte = 1e-3};
  SimulatedAllreduce allreduce(4, costs, segment);
  const std::vector<double> starts{0.0, 5.0, 2.0, 0.0};
  // The last comes at 5. Each of 4 inputs is read, each of 4 outputs written; two synchronisations.
  EXPECT_THAT(allreduce.run(1000, starts), testing::Each(testing::DoubleEq(5.0 + 8.0 + 2.0)));
}

TEST(SimulatedStepTest, RefusesWhatDoesNotFit) {
  SimulatedCosts costs = one_per_node;
  costs.ranks_per_node = 3;
  EXPECT_THROW(SimulatedAllreduce(8, costs, segment), std::invalid_argument);
  SimulatedAllreduce allreduce(4, one_per_node, segment);
  EXPECT_THROW(static_cast<void>(simulate_steps(allreduce, {}, equal_speed(3), 1)),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::transport::simulated_step_test
