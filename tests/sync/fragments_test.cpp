// Averages in fragments: whose rounds end when, what they compute, and what they send.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::fragments_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::small_gradient;
using test::step_of;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::size_t> layers = {8, 24, 5, 11};
constexpr std::size_t size = 48;
constexpr std::size_t first_of_two = 32;  // elements of the first of two fragments

std::vector<float> trained(transport::World& world, const KStepOptions& options, int steps,
                           bool flushed) {
  Arrays arrays(world, layers);
  const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.0F}), options);
  for (int index = 0; index < steps; ++index) {
    test::iterate(*scheme, arrays, step_of(world, index),
                  [&](std::size_t i, float) { return small_gradient(world.rank(), index, i); });
  }
  if (flushed) scheme->flush();
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

class FragmentsTest : public RanksTest {};

/// Where gradients do not depend on the parameters, it does not matter when a plain average is
/// taken.
TEST_P(FragmentsTest, CountEveryLocalStepOnce) {
  World{ranks()}.run([](transport::World& world) {
    const std::vector<float> whole = trained(world, {.period = 4}, 14, true);
    for (const std::int64_t fragments : {2, 3, 4}) {
      for (const std::int64_t overlap : {0, 1, 9}) {
        EXPECT_EQ(trained(world, {.period = 4, .overlap_steps = overlap, .fragments = fragments},
                          14, true),
                  whole)
            << fragments << " fragments, overlap " << overlap;
      }
    }
  });
}

/// The first fragment has the rounds that the whole model would have, with momentum as well.
TEST_P(FragmentsTest, TheFirstIsAveragedAsWithoutFragments) {
  World{ranks()}.run([](transport::World& world) {
    for (const std::int64_t overlap : {0, 2}) {
      KStepOptions options{.period = 4, .momentum = {.mu = 0.5F}, .overlap_steps = overlap};
      std::vector<float> whole = trained(world, options, 11, false);
      options.fragments = 2;
      std::vector<float> in_two = trained(world, options, 11, false);
      whole.resize(first_of_two);
      in_two.resize(first_of_two);
      EXPECT_EQ(in_two, whole) << overlap;
    }
  });
}

TEST_P(FragmentsTest, EndTheirRoundsInTurn) {
  World{ranks()}.run([](transport::World& world) {
    using End = std::tuple<int, std::int64_t, std::int64_t>;
    std::vector<End> ends;  // step, round, steps of it
    int now = 0;
    Arrays arrays(world, layers, 3);
    const auto scheme = make_k_step(
        arrays.replica(), make_sgd(size, {}),
        {.period = 4,
         .on_round = [&](const Round& round) { ends.emplace_back(now, round.index, round.steps); },
         .fragments = 2});
    for (int index = 0; index < 8; ++index) {
      now = index;
      test::iterate(*scheme, arrays, step_of(world, index),
                    [](std::size_t, float) { return 1.0F; });
    }
    EXPECT_THAT(ends, ElementsAre(End(1, 0, 2), End(3, 0, 4), End(5, 1, 4), End(7, 1, 4)));
    if (world.size() == 1) return;
    EXPECT_EQ(scheme->counters().global_reductions, 2U);
    EXPECT_EQ(scheme->counters().collectives, 4U);
    // Twice the model, the statistics with the first fragment, and a weight for each.
    EXPECT_EQ(scheme->counters().global_bytes, 2U * 4 * (size + 3 + 2));
  });
}

/// Also where a fragment's round has just ended when it comes.
TEST_P(FragmentsTest, AfterAFlushTheyEndInTurnAgain) {
  World{ranks()}.run([](transport::World& world) {
    for (const int flushed : {1, 2, 3, 4, 5}) {
      std::vector<int> ends;  // steps
      int now = 0;
      Arrays arrays(world, layers);
      const auto scheme = make_k_step(
          arrays.replica(), make_sgd(size, {}),
          {.period = 4, .on_round = [&](const Round&) { ends.push_back(now); }, .fragments = 2});
      for (int index = 0; index < flushed + 8; ++index) {
        now = index - flushed;
        if (now == 0) {
          scheme->flush();
          ends.clear();
        }
        test::iterate(*scheme, arrays, step_of(world, index),
                      [](std::size_t, float) { return 1.0F; });
      }
      EXPECT_THAT(ends, ElementsAre(1, 3, 5, 7)) << flushed;
    }
  });
}

/// Also after a flush, which ends all rounds at once.
TEST_P(FragmentsTest, EvaluateWhatFlushLeavesAtEveryStep) {
  World{ranks()}.run([](transport::World& world) {
    const auto make = [](const Replica& replica) {
      return make_k_step(
          replica, make_sgd(size, {}),
          {.period = 4, .momentum = {.mu = 0.5F}, .overlap_steps = 1, .fragments = 3});
    };
    test::expect_evaluation_as_flush(world, layers, make, 5);
  });
}

TEST_P(FragmentsTest, AStateKnowsHowManyThereWere) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, layers);
    const auto make = [&](std::int64_t fragments) {
      return make_k_step(arrays.replica(), make_sgd(size, {}),
                         {.period = 4, .fragments = fragments});
    };
    const auto in_two = make(2);
    const std::vector<std::byte> state = in_two->save();
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] { make(3)->restore(state); }),
                HasSubstr("saved with 2 fragments, and here are 3"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FragmentsTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace rondo::sync::fragments_test
