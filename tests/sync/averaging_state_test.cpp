// A run by averages that is saved and restored in mid-round goes on with the same bits, and so
// does one that is evaluated.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/iterate.hpp"

namespace rondo::sync::averaging_state_test {
namespace {

using rondo::test::World;
using test::Arrays;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Iterations [first, last), whose gradients depend on the parameters, the rank and the step;
/// the learning rate falls. Rank r has r + 1 samples.
void train(transport::World& world, UpdateScheme& scheme, Arrays& arrays, int first, int last) {
  for (int step = first; step < last; ++step) {
    const auto rank = static_cast<float>(world.rank());
    for (float& statistic : arrays.statistics) statistic = 0.9F * statistic + rank;
    test::iterate(
        scheme, arrays,
        {.index = step,
         .local_samples = static_cast<std::size_t>(world.rank() + 1),
         .global_samples = static_cast<std::size_t>(world.size() * (world.size() + 1) / 2),
         .learning_rate = 0.1 / (1 + step)},
        [&](std::size_t i, float w) {
          return 0.3F * w + 0.7F * static_cast<float>(step % 3) - rank +
                 0.01F * static_cast<float>(i);
        });
  }
}

enum class Rule { sgd, adam, adamw };

std::unique_ptr<Optimizer> make_optimizer(Rule rule, std::size_t size) {
  if (rule == Rule::sgd) return make_sgd(size, {});
  return rule == Rule::adam ? make_adam(size) : make_adamw(size, {.weight_decay = 0.1});
}

class AveragingStateTest
    : public testing::TestWithParam<std::tuple<LocalState, MomentumKind, Rule>> {
 protected:
  static std::unique_ptr<UpdateScheme> make_scheme(Arrays& arrays, transport::Communicator& pair) {
    const auto [local_state, kind, rule] = GetParam();
    return make_hierarchical(arrays.replica(), make_optimizer(rule, arrays.parameters.size()),
                             {.period = 6,
                              .levels = {{2, &pair}},
                              .momentum = {.kind = kind, .mu = 0.7F},
                              .local_state = local_state,
                              .clip_norm = 2.0});
  }
};

// Saved after 9 steps: one round, one local average in the second, and a step.
TEST_P(AveragingStateTest, ARestoredRunGoesOnWithTheSameBits) {
  World{4}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {50, 60}, 4);
    const auto scheme = make_scheme(arrays, pair);
    train(world, *scheme, arrays, 0, 9);
    Arrays others(world, {50, 60}, 4);
    const auto other = make_scheme(others, pair);

    std::ranges::copy(arrays.parameters, others.parameters.begin());
    others.statistics = arrays.statistics;
    other->restore(scheme->save());
    train(world, *scheme, arrays, 9, 20);
    train(world, *other, others, 9, 20);

    EXPECT_THAT(others.parameters, ElementsAreArray(arrays.parameters));
    EXPECT_EQ(others.statistics, arrays.statistics);
    EXPECT_EQ(other->counters().global_reductions, 3U);
    EXPECT_EQ(other->save(), scheme->save());
  });
}

TEST_P(AveragingStateTest, AnEvaluationCopyLeavesTrainingAsItWas) {
  World{4}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {50, 60}, 4);
    Arrays others(world, {50, 60}, 4);
    const auto scheme = make_scheme(arrays, pair);
    const auto evaluated = make_scheme(others, pair);
    std::vector<float> parameters(110);
    std::vector<float> statistics(4);

    for (int step = 0; step < 14; ++step) {
      evaluated->copy_for_evaluation(parameters, statistics);
      train(world, *scheme, arrays, step, step + 1);
      train(world, *evaluated, others, step, step + 1);
    }

    EXPECT_THAT(others.parameters, ElementsAreArray(arrays.parameters));
    EXPECT_EQ(others.statistics, arrays.statistics);
    EXPECT_EQ(evaluated->counters().evaluation_reductions, 14U);
    EXPECT_EQ(evaluated->counters().collectives, scheme->counters().collectives);
    for (std::size_t i = 0; i < scheme->replicated().size(); ++i) {
      EXPECT_THAT(evaluated->replicated()[i], ElementsAreArray(scheme->replicated()[i]));
    }
  });
}

TEST_P(AveragingStateTest, ReplicatedIsTheSameOnAllRanksInMidRound) {
  World{4}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {50, 60}, 4);
    const auto scheme = make_scheme(arrays, pair);
    train(world, *scheme, arrays, 0, 9);

    const std::vector<std::span<const float>> replicated = scheme->replicated();

    ASSERT_EQ(replicated.size(), 2U);
    for (const std::span<const float> mine : replicated) {
      std::vector<float> first(mine.begin(), mine.end());
      world.communicator().broadcast(std::span(first), 0).wait();
      EXPECT_THAT(mine, ElementsAreArray(first));
    }
    EXPECT_NE(arrays.parameters[0], replicated[0][0]);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Variants, AveragingStateTest,
    testing::Values(std::tuple(LocalState::keep, MomentumKind::classical, Rule::sgd),
                    std::tuple(LocalState::keep, MomentumKind::nesterov, Rule::adam),
                    std::tuple(LocalState::average, MomentumKind::slowmo, Rule::adam),
                    std::tuple(LocalState::reset, MomentumKind::diloco, Rule::adamw)));

TEST(AveragingStateRefusalTest, RefusesTheStateOfAnotherModelAndKeepsItsOwn) {
  World{1}.run([](transport::World& world) {
    Arrays arrays(world, {50});
    Arrays others(world, {51});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(50, {}), {.period = 4});
    train(world, *scheme, arrays, 0, 6);
    const std::vector<std::byte> before = scheme->save();

    EXPECT_THROW(scheme->restore(make_k_step(others.replica(), make_sgd(51, {}))->save()),
                 std::invalid_argument);
    EXPECT_THROW(scheme->restore(make_sgd(50, {})->save()), std::invalid_argument);
    EXPECT_THROW(scheme->restore(std::span(before).first(before.size() - 1)),
                 std::invalid_argument);

    EXPECT_EQ(scheme->save(), before);
  });
}

TEST(AveragingStateRefusalTest, RefusesAPlaceThatIsNotInTheRound) {
  World{1}.run([](transport::World& world) {
    Arrays arrays(world, {50});
    const auto slow = make_k_step(arrays.replica(), make_sgd(50, {}), {.period = 4});
    const auto fast = make_k_step(arrays.replica(), make_sgd(50, {}), {.period = 2});
    train(world, *slow, arrays, 0, 3);

    EXPECT_THAT([&] { fast->restore(slow->save()); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(
                    "k_step: the state was saved after 3 steps of a round, which has 2 here")));
  });
}

}  // namespace
}  // namespace rondo::sync::averaging_state_test
