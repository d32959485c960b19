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
using test::SimulatedCosts;
using test::SimulatedHierarchy;
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
  SimulatedHierarchy ranks(4, one_per_node, segment);
  const SimulatedWork work{.backward_end = 10.0, .update_seconds = 1.0};
  EXPECT_THAT(simulate_steps(ranks, work, equal_speed(4), 3),
              testing::ElementsAre(11.0, 22.0, 33.0));
}

TEST(SimulatedStepTest, AddsWhatBackwardDoesNotHide) {
  SimulatedHierarchy ranks(8, without_latency, segment);
  const SimulatedWork work{.buckets = {{.final_seconds = 4.0, .bytes = long_bytes}},
                           .backward_end = 10.0,
                           .update_seconds = 1.0};
  const double reduced = ring_seconds(8, long_bytes);
  ASSERT_GT(4.0 + reduced, 10.0);
  EXPECT_NEAR(simulate_steps(ranks, work, equal_speed(8), 1)[0], 4.0 + reduced + 1.0, 1e-9);
}

TEST(SimulatedStepTest, HidesWhatEndsBeforeBackward) {
  SimulatedHierarchy ranks(8, one_per_node, segment);
  const SimulatedWork work{.buckets = {{.final_seconds = 4.0, .bytes = 64}},
                           .backward_end = 100.0,
                           .update_seconds = 1.0};
  EXPECT_DOUBLE_EQ(simulate_steps(ranks, work, equal_speed(8), 1)[0], 101.0);
}

TEST(SimulatedStepTest, ReducesBucketsOneAfterAnother) {
  SimulatedHierarchy ranks(8, without_latency, segment);
  const SimulatedWork work{.buckets = {{.final_seconds = 4.0, .bytes = long_bytes},
                                       {.final_seconds = 5.0, .bytes = long_bytes}},
                           .backward_end = 6.0};
  const double reduced = ring_seconds(8, long_bytes);
  EXPECT_NEAR(simulate_steps(ranks, work, equal_speed(8), 1)[0], 4.0 + 2.0 * reduced, 1e-9);
}

// By doubling: three messages of all bytes. The slow rank finds there what the others have summed,
// and ends first; they wait for what it sends.
TEST(SimulatedStepTest, OneSlowRankDelaysAll) {
  SimulatedHierarchy ranks(8, one_per_node, segment);
  std::vector<double> starts(8, 9.0);
  starts[5] = 27.0;
  const std::vector<double> ends = ranks.allreduce(64, starts);
  EXPECT_DOUBLE_EQ(ends[5], 27.0);
  EXPECT_DOUBLE_EQ(ends[4], 27.0 + (1.0 + 64e-6));
  EXPECT_DOUBLE_EQ(*std::ranges::max_element(ends), 27.0 + 3.0 * (1.0 + 64e-6));

  const SimulatedWork work{.buckets = {{.final_seconds = 9.0, .bytes = 64}},
                           .backward_end = 10.0,
                           .update_seconds = 1.0};
  std::vector<double> slowness = equal_speed(8);
  slowness[5] = 3.0;
  SimulatedHierarchy anew(8, one_per_node, segment);
  EXPECT_THAT(simulate_steps(anew, work, slowness, 2), testing::ElementsAre(33.0, 66.0));
}

TEST(SimulatedStepTest, RefusesWhatDoesNotFit) {
  SimulatedHierarchy ranks(4, one_per_node, segment);
  EXPECT_THROW(static_cast<void>(simulate_steps(ranks, {}, equal_speed(3), 1)),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::transport::simulated_step_test
