// The ways of averages: at once or beside the local steps after them, whole or in fragments, as
// fp32 or as bf16. When they are applied, and what arrives.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::sent_averages_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::small_gradient;
using test::step_of;
using testing::Each;
using testing::ElementsAre;
using transport::ElementType;

const std::vector<std::size_t> layers = {8, 24, 5, 11};
constexpr std::size_t size = 48;
constexpr std::size_t first_of_two = 32;  // elements of the first of two fragments

std::vector<float> trained(transport::World& world, const KStepOptions& options,
                           bool flushed = true) {
  Arrays arrays(world, layers);
  const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.0F}), options);
  for (int index = 0; index < 11; ++index) {
    test::iterate(*scheme, arrays, step_of(world, index),
                  [&](std::size_t i, float) { return small_gradient(world.rank(), index, i); });
  }
  if (flushed) scheme->flush();
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

/// 1, 2 and 4 ranks, over which means of whole numbers are exact.
class SentAveragesTest : public RanksTest {};

/// Where gradients do not depend on the parameters, it does not matter when an average is applied;
/// nor does the type, which holds these displacements. Fragments are for plain averages here.
TEST_P(SentAveragesTest, CountEveryLocalStepOnce) {
  World{ranks()}.run([](transport::World& world) {
    for (const float mu : {0.0F, 0.5F}) {
      const ReductionMomentum momentum{.mu = mu};
      const std::vector<float> at_once = trained(world, {.period = 4, .momentum = momentum});
      for (const std::int64_t overlap : {0, 1, 2, 3, 4, 9}) {
        for (const std::int64_t fragments : {1, 2, 3, 4}) {
          if (fragments > 1 && mu != 0.0F) continue;
          for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
            EXPECT_EQ(trained(world, {.period = 4,
                                      .momentum = momentum,
                                      .overlap_steps = overlap,
                                      .fragments = fragments,
                                      .average_type = type}),
                      at_once)
                << overlap << " steps, " << fragments << " fragments, momentum " << mu;
          }
        }
      }
    }
  });
}

/// The first fragment has the rounds that the whole model would have, with momentum as well.
TEST_P(SentAveragesTest, TheFirstFragmentIsAveragedAsWithoutFragments) {
  World{ranks()}.run([](transport::World& world) {
    for (const std::int64_t overlap : {0, 2}) {
      KStepOptions options{.period = 4, .momentum = {.mu = 0.5F}, .overlap_steps = overlap};
      std::vector<float> whole = trained(world, options, false);
      options.fragments = 2;
      std::vector<float> in_two = trained(world, options, false);
      whole.resize(first_of_two);
      in_two.resize(first_of_two);
      EXPECT_EQ(in_two, whole) << overlap;
    }
  });
}

/// Also after a flush, and where a fragment's round has just ended when it comes.
TEST_P(SentAveragesTest, FragmentsEndTheirRoundsInTurn) {
  World{ranks()}.run([](transport::World& world) {
    for (const int flushed : {0, 1, 2, 3, 4, 5}) {
      std::vector<int> ends;  // steps
      std::vector<std::int64_t> lengths;
      int now = 0;
      Arrays arrays(world, layers);
      const auto record = [&](const Round& round) {
        ends.push_back(now);
        lengths.push_back(round.steps);
      };
      const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {}),
                                      {.period = 4, .on_round = record, .fragments = 2});
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
      if (flushed == 0) {
        EXPECT_THAT(lengths, ElementsAre(2, 4, 4, 4));
      }
    }
  });
}

/// Rank r goes r+1 units in each step; a round has 3 steps, and its average comes 2 steps later.
TEST_P(SentAveragesTest, ARankGoesOnFromItsOwnParametersUntilTheAverageIsApplied) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {1});
    std::vector<int> reported;  // the steps behind which rounds are
    std::vector<float> seen;
    const auto scheme = make_k_step(
        arrays.replica(), make_sgd(1, {.momentum = 0.0F}),
        {.period = 3,
         .on_round = [&](const Round&) { reported.push_back(static_cast<int>(seen.size())); },
         .overlap_steps = 2});
    const float own = static_cast<float>(world.rank() + 1);
    const float mean = static_cast<float>(world.size() + 1) / 2.0F;
    const bool alone = world.size() == 1;
    for (int index = 0; index < 6; ++index) {
      test::iterate(*scheme, arrays, step_of(world, index),
                    [&](std::size_t, float) { return -8.0F * own; });
      seen.push_back(arrays.parameters[0]);
    }
    const float applied = alone ? 3 * own : 3 * mean;
    EXPECT_THAT(seen,
                ElementsAre(own, 2 * own, 3 * own, 4 * own, applied + 2 * own, applied + 3 * own));
    scheme->flush();
    EXPECT_EQ(arrays.parameters[0], alone ? 6 * own : 6 * mean);
    EXPECT_THAT(reported, alone ? ElementsAre(2, 5) : ElementsAre(4, 6));
  });
}

// Every round moves by 1 + 2^-9, of which bf16 holds 1: the rest arrives when it is 2^-7. Without
// feedback it would never.
TEST_P(SentAveragesTest, WhatRoundingToBf16LeavesOutIsSentLater) {
  World{ranks()}.run([](transport::World& world) {
    const float step = 0.5F + std::ldexp(1.0F, -10);
    Arrays arrays(world, {size});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.0F}),
                                    {.period = 2, .average_type = ElementType::bf16});
    const auto move = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        test::iterate(*scheme, arrays, step_of(world, i, {.rate = 1.0}),
                      [&](std::size_t, float) { return -step; });
      }
    };
    const bool rounds = world.size() > 1;

    move(2);
    EXPECT_THAT(arrays.parameters, Each(rounds ? 1.0F : 2 * step));
    move(4);
    EXPECT_THAT(arrays.parameters, Each(rounds ? 3.0F + std::ldexp(1.0F, -7) : 6 * step));
    move(3);
    scheme->flush();

    EXPECT_THAT(arrays.parameters, Each(9 * step)) << "flush() leaves nothing behind";
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, SentAveragesTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace rondo::sync::sent_averages_test
