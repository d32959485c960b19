// How long rounds of averaging are: the policies' formulas, and what averaging makes of them.

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/period_policy.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::period_policy_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(PeriodPolicyTest, PostLocalAveragesInEveryStepAtFirst) {
  const PeriodPolicy policy = post_local(100);
  EXPECT_EQ(policy({.step = 99, .period = 16}), 1);
  EXPECT_EQ(policy({.step = 100, .period = 16}), 16);
}

TEST(PeriodPolicyTest, QsrGrowsWithTheSquareOfTheInverseRate) {
  const PeriodPolicy policy = qsr(0.25);
  EXPECT_EQ(policy({.period = 4, .learning_rate = 0.25}), 4);
  EXPECT_EQ(policy({.period = 4, .learning_rate = 0.125}), 4);
  EXPECT_EQ(policy({.period = 4, .learning_rate = 0.0625}), 16);
  EXPECT_EQ(policy({.period = 4, .learning_rate = 0.1}), 6);  // 6.25
  EXPECT_EQ(qsr(0.3)({.period = 4, .learning_rate = 0.1}), 9);
}

TEST(PeriodPolicyTest, QsrWithoutARateIsTheLongestRound) {
  const PeriodPolicy policy = qsr(0.25);
  EXPECT_EQ(policy({.period = 4, .learning_rate = 0.0}), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(policy({.period = 4, .learning_rate = 1e-300}),
            std::numeric_limits<std::int32_t>::max());
}

TEST(PeriodPolicyTest, QsrTakesNoWarmUpForADecay) {
  const PeriodPolicy policy = qsr(0.25, 100, 0.0625);
  EXPECT_EQ(policy({.step = 0, .period = 4, .learning_rate = 0.0}), 16);
  EXPECT_EQ(policy({.step = 99, .period = 4, .learning_rate = 0.0625 * 0.99}), 16);
  EXPECT_EQ(policy({.step = 100, .period = 4, .learning_rate = 0.0625}), 16);
  EXPECT_EQ(policy({.step = 101, .period = 4, .learning_rate = 0.03125}), 64);
}

TEST(PeriodPolicyTest, QsrNeedsAPositiveAlpha) {
  for (const double alpha : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(
        rondo::test::error_text<std::invalid_argument>([&] { static_cast<void>(qsr(alpha)); }),
        HasSubstr("is not positive"))
        << alpha;
  }
}

TEST(PeriodPolicyTest, AdaptiveShrinksWithTheRootOfTheLoss) {
  const PeriodPolicy policy = adaptive();
  const auto period = [&](double loss) {
    return policy({.period = 16, .loss = loss, .first_loss = 4.0});
  };
  EXPECT_EQ(period(4.0), 16);
  EXPECT_EQ(period(1.0), 8);
  EXPECT_EQ(period(1.1), 9);
  EXPECT_EQ(period(0.0), 1);
  EXPECT_EQ(period(5.0), 16);
}

TEST(PeriodPolicyTest, AdaptiveWithoutALossIsThePeriod) {
  const PeriodPolicy policy = adaptive();
  EXPECT_EQ(policy({.period = 16}), 16);
  EXPECT_EQ(policy({.period = 16, .loss = std::nan(""), .first_loss = 1.0}), 16);
}

constexpr std::size_t size = 30;

/// The results of a run of k_step: parameters, and the steps of its rounds. Losses are given by
/// step, with 2 samples on each rank.
struct Trained {
  std::vector<float> parameters = {};
  std::vector<std::int64_t> rounds = {};
  SchemeCounters counters = {};
};

Trained run_of(transport::World& world, KStepOptions options, int steps,
               const std::vector<double>& losses = {}) {
  Trained run;
  options.on_round = [&](const Round& round) { run.rounds.push_back(round.steps); };
  Arrays arrays(world, {size});
  const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.5F}), options);
  for (int index = 0; index < steps; ++index) {
    const Step step =
        test::step_of(world, index, {.samples = 2, .rate = index < 6 ? 0.125 : 0.0625});
    test::iterate(*scheme, arrays, step, [&](std::size_t i, float w) {
      if (i == 0 && !losses.empty()) {
        // The ranks' losses differ; their sum is what counts.
        const double mine = losses[static_cast<std::size_t>(index)] + world.rank();
        scheme->add_loss(2.0 * (mine - (world.size() - 1) / 2.0));
      }
      return 0.61F * w + static_cast<float>(world.rank() + index % 3) -
             0.37F * static_cast<float>(i);
    });
  }
  scheme->flush();
  run.parameters.assign(arrays.parameters.begin(), arrays.parameters.end());
  run.counters = scheme->counters();
  return run;
}

class PeriodOfTest : public RanksTest {};

TEST_P(PeriodOfTest, AConstantPolicyIsThePeriodBitForBit) {
  World{ranks()}.run([](transport::World& world) {
    const ReductionMomentum momentum{.kind = MomentumKind::slowmo, .mu = 0.5F};
    const Trained plain = run_of(world, {.period = 4, .momentum = momentum}, 14);
    const Trained asked = run_of(
        world,
        {.period = 2, .momentum = momentum, .period_of = [](const RoundStart&) { return 4; }}, 14);
    EXPECT_EQ(asked.parameters, plain.parameters);
    EXPECT_EQ(asked.rounds, plain.rounds);
    EXPECT_EQ(asked.counters.global_bytes, plain.counters.global_bytes);
  });
}

TEST_P(PeriodOfTest, RoundsAreAsLongAsThePolicySays) {
  World{ranks()}.run([](transport::World& world) {
    EXPECT_THAT(run_of(world, {.period = 4, .period_of = post_local(3)}, 12).rounds,
                ElementsAre(1, 1, 1, 4, 4, 1));
    // Rates of 1/8 and, from step 6 on, of 1/16.
    EXPECT_THAT(run_of(world, {.period = 2, .period_of = qsr(0.1875)}, 17).rounds,
                ElementsAre(2, 2, 2, 9, 2));
  });
}

TEST_P(PeriodOfTest, ThePolicyIsToldWhereTrainingIs) {
  World{ranks()}.run([](transport::World& world) {
    std::vector<RoundStart> told;
    const std::vector<double> losses{8, 4, 3, 1, 1, 1, 1};
    run_of(world,
           {.period = 2,
            .period_of =
                [&](const RoundStart& round) {
                  told.push_back(round);
                  return round.period;
                },
            .sums_losses = true},
           7, losses);
    ASSERT_EQ(told.size(), 4U);
    EXPECT_EQ(told[0].loss, 0.0);
    EXPECT_EQ(told[0].first_loss, 0.0);
    EXPECT_EQ(told[1].loss, 6.0);
    EXPECT_EQ(told[2].loss, 2.0);
    EXPECT_EQ(told[2].first_loss, 6.0);
    EXPECT_EQ(told[2].index, 2);
    EXPECT_EQ(told[2].step, 4);
    EXPECT_EQ(told[2].learning_rate, 0.125);
    EXPECT_EQ(told[3].learning_rate, 0.0625);
  });
}

TEST_P(PeriodOfTest, ARoundHasAStepAtLeast) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {size});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {}),
                                    {.period_of = [](const RoundStart&) { return 0; }});
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { scheme->begin({.local_samples = 1, .global_samples = 1}); }),
                HasSubstr("period_of gives round 0 0 steps; it has at least 1"));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, PeriodOfTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace rondo::sync::period_policy_test
