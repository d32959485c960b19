// A scheme sends what its closed form says: the counters of the scheme, and the operations and the
// bytes that the transport has counted.

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/sync/period_policy.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/given.hpp"

namespace rondo::sync::counters_test {
namespace {

using rondo::test::World;
using test::Given;
using test::Scheme;
using transport::ElementType;

// Each is longer than what the ranks of a node exchange without cutting it among them.
const std::vector<std::size_t> layers = {10'000, 5'000, 20'000};
constexpr std::uint64_t model = 35'000;
constexpr std::uint64_t lazy_layers = 15'000;
constexpr std::uint64_t statistics = 2'000;
constexpr std::uint64_t average = 4 * (model + statistics + 1);  // bytes, with a weight
constexpr std::uint64_t average_in_bf16 = 2 * model + 4 * (statistics + 1);
constexpr auto bf16 = ElementType::bf16;
constexpr SynchronousOptions a_bucket_for_each{.bucket_bytes = 4096, .last_bucket_bytes = 4096};

struct Case {
  std::string name;
  Scheme (*make)(const Given& given);
  int steps;
  SchemeCounters expected;
  bool levels = false;          ///< pairs need 4 ranks
  bool short_messages = false;  ///< which every rank reads whole

  friend void PrintTo(const Case& tested, std::ostream* stream) { *stream << tested.name; }
};

const std::vector<Case> cases = {
    {"Synchronous",
     [](const Given& g) { return g.synchronous(a_bucket_for_each); },
     5,
     {.global_reductions = 5, .global_bytes = 5 * 4 * model, .collectives = 5 * 3}},
    {"SynchronousInBf16",
     [](const Given& g) { return g.synchronous({4096, 4096, 0.0, bf16}); },
     5,
     {.global_reductions = 5, .global_bytes = 5 * 2 * model, .collectives = 5 * 3}},
    // As much as allreduces do: gradients one way, parameters the other.
    {"Sharded",
     [](const Given& g) { return g.sharded(a_bucket_for_each); },
     3,
     {.global_reductions = 3, .global_bytes = 3 * 4 * model, .collectives = 3 * 3 * 2}},
    {"ShardedInBf16",
     [](const Given& g) { return g.sharded({4096, 4096, 0.0, bf16}); },
     3,
     {.global_reductions = 3, .global_bytes = 3 * 3 * model, .collectives = 3 * 3 * 2}},
    // Windows of 1, 2, 3 and 3 iterations: the last layer in each of them; in three windows that
    // are tested, all but one element of the second layer.
    {"Lazy",
     [](const Given& g) { return g.lazy({.max_interval = 3}); },
     9,
     {.global_reductions = 9,
      .lazy_reductions = 4,
      .global_bytes = 4 * (9 * 20'000 + 4 * lazy_layers + 3 * 4'999),
      .collectives = 9 + 4 + 3}},
    {"LazyInBf16",
     [](const Given& g) { return g.lazy({.max_interval = 3, .gradient_type = bf16}); },
     9,
     {.global_reductions = 9,
      .lazy_reductions = 4,
      .global_bytes = 2 * (9 * 20'000 + 4 * lazy_layers + 3 * 4'999),
      .collectives = 9 + 4 + 3}},
    // Windows of 1, 2 and 2; all probes at once.
    {"LazyByEveryLayer",
     [](const Given& g) {
       return g.lazy({.controller = LazyController::every_layer, .max_interval = 2});
     },
     5,
     {.global_reductions = 5,
      .lazy_reductions = 3,
      .global_bytes = 4 * (5 * 20'000 + 3 * lazy_layers + 2 * (lazy_layers - 2)),
      .collectives = 5 + 3 + 2}},
    {"KStep",
     [](const Given& g) { return g.k_step({.period = 4}); },
     13,
     {.global_reductions = 3, .global_bytes = 3 * average, .collectives = 3}},
    {"KStepInBf16",
     [](const Given& g) { return g.k_step({.period = 4, .average_type = bf16}); },
     13,
     {.global_reductions = 3, .global_bytes = 3 * average_in_bf16, .collectives = 3 * 2}},
    {"KStepWithItsState",
     [](const Given& g) { return g.k_step({.period = 2, .local_state = LocalState::average}); },
     5,
     {.global_reductions = 2, .global_bytes = 2 * (average + 4 * model), .collectives = 2}},
    {"KStepOverlapped",
     [](const Given& g) { return g.k_step({.period = 4, .overlap_steps = 2}); },
     14,
     {.global_reductions = 3, .global_bytes = 3 * average, .collectives = 3}},
    // Statistics are sent with the first fragment, and a weight with each.
    {"KStepInFragments",
     [](const Given& g) { return g.k_step({.period = 4, .fragments = 2}); },
     8,
     {.global_reductions = 2, .global_bytes = 2 * (average + 4), .collectives = 2 * 2}},
    // The loss of a round is one number more.
    {"KStepAdaptive",
     [](const Given& g) {
       return g.k_step({.period = 4, .period_of = adaptive(), .sums_losses = true});
     },
     9,
     {.global_reductions = 2, .global_bytes = 2 * (average + 8), .collectives = 2 * 2},
     false,
     true},
    // Pairs average after every step but the eighth, which is the world's.
    {"Hierarchical",
     [](const Given& g) { return g.hierarchical({.period = 8, .levels = {{1, &g.pair}}}); },
     16,
     {.global_reductions = 2,
      .local_reductions = 14,
      .global_bytes = 2 * average,
      .local_bytes = 14 * average,
      .collectives = 16},
     true},
    // As with the ranks of a node as groups, where there is one node: nothing was saved by them.
    {"HierarchicalWithALevelOfAllRanks",
     [](const Given& g) {
       transport::Communicator* const all = &g.replica.world->communicator();
       return g.hierarchical({.period = 8, .levels = {{1, &g.pair}, {2, all}}});
     },
     16,
     {.global_reductions = 8,
      .local_reductions = 8,
      .global_bytes = 8 * average,
      .local_bytes = 8 * average,
      .collectives = 16},
     true},
    // Levels begin anew in each round: they average after 2, 4 and 5 of its steps.
    {"HierarchicalByAPolicy",
     [](const Given& g) {
       transport::Communicator* const all = &g.replica.world->communicator();
       return g.hierarchical(
           {.period = 6, .levels = {{2, all}}, .period_of = [](const RoundStart&) { return 5; }});
     },
     10,
     {.global_reductions = 6, .global_bytes = 6 * average, .collectives = 6}}};

void expect_counters(transport::World& world, const Case& tested) {
  transport::Communicator pair = world.communicator().split(world.rank() / 2);
  test::Arrays arrays(world, layers, statistics);
  const Scheme scheme = tested.make({arrays.replica(), make_sgd(model, {}), pair});
  const transport::Counters before = world.counters();
  for (int index = 0; index < tested.steps; ++index) {
    test::iterate(*scheme, arrays, test::step_of(world, index),
                  [](std::size_t, float) { return 1.0F; });
  }
  for (std::size_t layer = 0; layer < layers.size(); ++layer) scheme->make_ready(layer);

  const SchemeCounters counters = scheme->counters();
  const SchemeCounters expected = world.size() == 1 ? SchemeCounters{} : tested.expected;
  EXPECT_EQ(counters.global_reductions, expected.global_reductions);
  EXPECT_EQ(counters.lazy_reductions, expected.lazy_reductions);
  EXPECT_EQ(counters.local_reductions, expected.local_reductions);
  EXPECT_EQ(counters.global_bytes, expected.global_bytes);
  EXPECT_EQ(counters.local_bytes, expected.local_bytes);
  EXPECT_EQ(counters.collectives, expected.collectives);
  EXPECT_EQ(counters.evaluation_reductions, 0U);
  EXPECT_EQ(world.counters().operations - before.operations, expected.collectives);
  if (tested.short_messages) return;
  // A group of S moves 2 (S-1) times what a rank gives; there is half a pair for each rank.
  std::vector<std::uint64_t> moved{world.counters().moved_bytes() - before.moved_bytes()};
  const auto ranks = static_cast<std::uint64_t>(world.size());
  world.communicator().allreduce(std::span(moved)).wait();
  EXPECT_EQ(moved[0], 2 * (ranks - 1) * expected.global_bytes + ranks * expected.local_bytes);
}

class CountersTest : public testing::TestWithParam<Case> {};

TEST_P(CountersTest, EqualTheClosedForm) {
  for (const int ranks : {1, 2, 3, 4}) {
    if (GetParam().levels && ranks != 4) continue;
    SCOPED_TRACE(ranks);
    World{ranks}.run([](transport::World& world) { expect_counters(world, GetParam()); });
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, CountersTest, testing::ValuesIn(cases),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace rondo::sync::counters_test
