// K-step averaging over ranks that are threads: what it computes.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::k_step_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::iterate;
using test::step_of;
using testing::ElementsAreArray;
using testing::FloatNear;
using testing::Pointwise;

const std::vector<std::size_t> layer_sizes{40, 3, 0, 129};
constexpr std::size_t size = 172;
constexpr test::StepOptions two_samples{.samples = 2};

/// A rank's gradient: small whole numbers, so that sums are exact in any order.
float whole_gradient(int rank, int step, std::size_t element) {
  return static_cast<float>((rank * 14 + step * 3 + static_cast<int>(element % 11)) % 13 - 6);
}

/// The same with a part that depends on the parameter, and nothing exact about it.
float odd_gradient(int rank, int step, std::size_t element, float parameter) {
  return 0.37F * whole_gradient(rank, step, element) + 0.61F * parameter;
}

enum class Numbers { whole, odd };

/// The shares of a batch of 2 samples per rank: 2 each; the rank's number plus one, of fewer in
/// all; or all of them on the first rank.
enum class Shares { equal, unequal, first };

Step step_of(const transport::World& world, int index, Shares shares) {
  Step step = step_of(world, index, two_samples);
  if (shares == Shares::unequal) {
    step.local_samples = static_cast<std::size_t>(world.rank() + 1);
    step.global_samples = static_cast<std::size_t>(world.size() * (world.size() + 1) / 2);
  }
  if (shares == Shares::first) step.local_samples = world.rank() == 0 ? step.global_samples : 0;
  return step;
}

/// The parameters after 6 steps of `scheme`.
std::vector<float> train(transport::World& world, Arrays& arrays, UpdateScheme& scheme,
                         Numbers numbers, Shares shares = Shares::equal) {
  std::ranges::fill(arrays.parameters, 1.0F);
  for (int index = 0; index < 6; ++index) {
    const Step step = step_of(world, index, shares);
    iterate(scheme, arrays, step, [&](std::size_t i, float w) {
      if (step.local_samples == 0) return 0.0F;
      return numbers == Numbers::whole ? whole_gradient(world.rank(), index, i)
                                       : odd_gradient(world.rank(), index, i, w);
    });
  }
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

std::vector<float> train_k_step(transport::World& world, const KStepOptions& options,
                                const SgdOptions& sgd, Numbers numbers,
                                Shares shares = Shares::equal) {
  Arrays arrays(world, layer_sizes);
  return train(world, arrays, *make_k_step(arrays.replica(), make_sgd(size, sgd), options), numbers,
               shares);
}

std::vector<float> train_synchronous(transport::World& world, Numbers numbers,
                                     Shares shares = Shares::equal,
                                     const SgdOptions& sgd = {.momentum = 0.0F}) {
  Arrays arrays(world, layer_sizes);
  return train(world, arrays, *make_synchronous(arrays.replica(), make_sgd(size, sgd)), numbers,
               shares);
}

constexpr SgdOptions decaying{.momentum = 0.5F, .weight_decay = 0.125F};

class KStepTest : public RanksTest {};

/// Means over 1, 2 and 4 ranks of whole numbers are exact.
class KStepExactTest : public KStepTest {};

/// Also with momenta that are averaged.
TEST_P(KStepTest, APeriodOfOneIsSynchronousSgdToRounding) {
  constexpr float rounding = 4e-6F;  // 6 steps of parameters below 4: a few units in the last place
  const KStepOptions averaged{.period = 1, .local_state = LocalState::average};
  World{ranks()}.run([&](transport::World& world) {
    for (const Shares shares : {Shares::equal, Shares::unequal}) {
      EXPECT_THAT(train_k_step(world, {.period = 1}, {.momentum = 0.0F}, Numbers::odd, shares),
                  Pointwise(FloatNear(rounding), train_synchronous(world, Numbers::odd, shares)));
      EXPECT_THAT(
          train_k_step(world, averaged, decaying, Numbers::odd, shares),
          Pointwise(FloatNear(rounding), train_synchronous(world, Numbers::odd, shares, decaying)));
    }
  });
}

/// Also where one rank has all samples.
TEST_P(KStepExactTest, APeriodOfOneIsSynchronousSgd) {
  World{ranks()}.run([](transport::World& world) {
    for (const Shares shares : {Shares::equal, Shares::first}) {
      EXPECT_THAT(train_k_step(world, {.period = 1}, {.momentum = 0.0F}, Numbers::whole, shares),
                  ElementsAreArray(train_synchronous(world, Numbers::whole, shares)));
    }
  });
}

TEST(KStepAloneTest, IsPlainLocalTraining) {
  World{1}.run([](transport::World& world) {
    std::vector<float> w(size, 1.0F);
    const auto sgd = make_sgd(size, {});
    for (int step = 0; step < 6; ++step) {
      std::vector<float> gradients(size);
      for (std::size_t i = 0; i < size; ++i) gradients[i] = odd_gradient(0, step, i, w[i]);
      sgd->update(0, w, gradients, {0.5F, 0.125, step});
    }

    EXPECT_EQ(train_k_step(world, {.period = 3}, {}, Numbers::odd), w);
  });
}

/// The gradient is 1: a round goes as far as the sum of its rates, and slowmo of 1/2 adds half of
/// that for the round before, at this round's rates.
TEST(KStepAloneTest, SlowMoMovesOneAndAHalfRoundsInTheSecondRoundOfAWarmUp) {
  constexpr float rounding = 1e-5F;  // 128 steps of a parameter of about 1
  constexpr int period = 64;
  const auto rate = [](int step) { return (step + 1) / 8192.0; };
  World{1}.run([&](transport::World& world) {
    Arrays arrays(world, {1});
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(1, {.momentum = 0.0F}),
                    {.period = period, .momentum = {.kind = MomentumKind::slowmo, .mu = 0.5F}});
    std::vector<float> after;
    for (int step = 0; step < 2 * period; ++step) {
      iterate(*scheme, arrays, step_of(world, step, {.samples = 2, .rate = rate(step)}),
              [](std::size_t, float) { return -2.0F; });  // of two samples
      if (step % period == period - 1) after.push_back(arrays.parameters[0]);
    }
    double rates = 0.0;
    for (int step = period; step < 2 * period; ++step) rates += rate(step);

    EXPECT_NEAR(after[1] - after[0], 1.5 * rates, rounding);
  });
}

KStepOptions stepping_by(const SgdOptions& outer, double rate = 1.0) {
  return {.period = 2, .outer_optimizer = make_sgd(size, outer), .outer_learning_rate = rate};
}

TEST_P(KStepTest, AnOuterSgdIsTheMomentumThatItIs) {
  World{ranks()}.run([](transport::World& world) {
    const auto by_momentum = [&](const ReductionMomentum& momentum) {
      return train_k_step(world, {.period = 2, .momentum = momentum}, {}, Numbers::odd);
    };
    const auto by_outer = [&](const SgdOptions& outer, double rate = 1.0) {
      return train_k_step(world, stepping_by(outer, rate), {}, Numbers::odd);
    };
    EXPECT_EQ(by_outer({.momentum = 0.5F}), by_momentum({.mu = 0.5F}));
    EXPECT_EQ(by_outer({.momentum = 0.5F, .nesterov = true}),
              by_momentum({.kind = MomentumKind::nesterov, .mu = 0.5F}));
    EXPECT_EQ(by_outer({.momentum = 0.5F, .nesterov = true}, 0.75),
              by_momentum({.kind = MomentumKind::diloco, .mu = 0.5F, .outer_rate = 0.75F}));
    if (world.size() > 1) {  // alone, a plain round keeps the parameters as they are
      EXPECT_EQ(by_outer({.momentum = 0.0F}), by_momentum({}));
    }
  });
}

/// f_j(w) = (w - target_j)^2 / 2, by hand: K = 2, classical momentum of 1/2, rate 1/2.
/// A rank that starts from W is at t + (W - t)/4 after a round: D = 3/4 (mean of t - W).
TEST_P(KStepExactTest, AveragesQuadraticsAsWorkedOutByHand) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {1});
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(1, {.momentum = 0.0F}),
                    {.period = 2, .momentum = {.kind = MomentumKind::classical, .mu = 0.5F}});
    const float target = 16.0F * static_cast<float>(world.rank());
    const double mean_target = 8.0 * (world.size() - 1);
    double common = 0.0;
    double velocity = 0.0;

    for (int round = 0; round < 4; ++round) {
      for (int step = 0; step < 2; ++step) {
        iterate(*scheme, arrays, step_of(world, step, {.samples = 2, .rate = 0.5}),
                [&](std::size_t, float w) { return 2.0F * (w - target); });
      }
      velocity = 0.5 * velocity + 0.75 * (mean_target - common);
      common += velocity;
      EXPECT_EQ(static_cast<double>(arrays.parameters[0]), common) << "round " << round;
    }
  });
}

TEST_P(KStepExactTest, AveragesStatisticsPlainly) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {5}, 2);
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(5, {}),
                    {.period = 2, .momentum = {.kind = MomentumKind::nesterov, .mu = 0.5F}});

    for (int step = 0; step < 4; ++step) {
      arrays.statistics[0] += static_cast<float>(world.rank());
      arrays.statistics[1] = 3.0F;
      iterate(*scheme, arrays, step_of(world, step, two_samples),
              [](std::size_t, float) { return 1.0F; });
    }

    EXPECT_EQ(arrays.statistics[0], 4.0F * static_cast<float>(world.size() - 1) / 2.0F);
    EXPECT_EQ(arrays.statistics[1], 3.0F);
  });
}

TEST_P(KStepTest, ARankWithoutSamplesMakesNoLocalStep) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {1});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(1, {}), {.period = 4});
    const bool has_samples = world.rank() == 0;

    iterate(*scheme, arrays,
            {.local_samples = has_samples ? 2U : 0U, .global_samples = 2, .learning_rate = 1.0},
            [](std::size_t, float) { return 8.0F; });

    EXPECT_EQ(arrays.parameters[0], has_samples ? -4.0F : 0.0F);
  });
}

TEST_P(KStepTest, ClipsTheMeanOfTheLocalGradient) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {2});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(2, {.momentum = 0.0F}),
                                    {.period = 2, .clip_norm = 2.5});

    // The mean is (3, 4): 5 long, twice too much.
    iterate(*scheme, arrays, step_of(world, 0, {.samples = 2, .rate = 1.0}),
            [](std::size_t i, float) { return i == 0 ? 6.0F : 8.0F; });

    EXPECT_THAT(arrays.parameters, testing::ElementsAre(-1.5F, -2.0F));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, KStepTest, testing::Values(1, 2, 3, 4));
INSTANTIATE_TEST_SUITE_P(Threads, KStepExactTest, testing::Values(1, 2, 4));

// When K-step averaging ends its rounds: evaluation, flush, reports and counters.

class KStepRoundsTest : public RanksTest {};

TEST_P(KStepRoundsTest, EvaluatesTheAverageAndLeavesTrainingAsItIs) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {1}, 1);
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(1, {}), {.period = 4, .momentum = {.mu = 0.5F}});
    const float rank = static_cast<float>(world.rank());
    const float mean_rank = static_cast<float>(world.size() - 1) / 2.0F;
    iterate(*scheme, arrays, step_of(world, 0, {.samples = 2, .rate = 1.0}),
            [&](std::size_t, float) { return -2.0F * rank; });
    arrays.statistics[0] = 4.0F * rank;
    std::vector<float> parameters(1);
    std::vector<float> statistics(1);

    scheme->copy_for_evaluation(parameters, statistics);

    EXPECT_EQ(parameters[0], mean_rank);
    EXPECT_EQ(statistics[0], 4.0F * mean_rank);
    EXPECT_EQ(arrays.parameters[0], rank);
    EXPECT_EQ(arrays.statistics[0], 4.0F * rank);
    EXPECT_EQ(scheme->counters().evaluation_reductions, world.size() == 1 ? 0U : 1U);
    EXPECT_EQ(scheme->counters().collectives, 0U);
  });
}

TEST_P(KStepRoundsTest, RoundsCountFromTheFirstIterationOnAndAreReported) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {4});
    std::vector<Round> rounds;
    const auto scheme = make_k_step(
        arrays.replica(), make_sgd(4, {.momentum = 0.0F}),
        {.period = 3, .on_round = [&](const Round& round) { rounds.push_back(round); }});

    for (int step = 100; step < 107; ++step) {
      iterate(*scheme, arrays, step_of(world, step, {.samples = 2, .rate = 0.5}),
              [](std::size_t, float) { return 4.0F; });
    }
    scheme->flush();

    ASSERT_EQ(rounds.size(), 3U);
    EXPECT_EQ(rounds[1].index, 1);
    EXPECT_EQ(rounds[1].steps, 3);
    EXPECT_EQ(rounds[1].samples, 6 * world.size());
    EXPECT_EQ(rounds[1].displacement, 6.0);  // 4 elements go 3 steps of 1
    EXPECT_EQ(rounds[2].steps, 1);
    EXPECT_EQ(rounds[2].displacement, 2.0);
    EXPECT_EQ(scheme->counters().global_reductions, world.size() == 1 ? 0U : 3U);
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, KStepRoundsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace rondo::sync::k_step_test
