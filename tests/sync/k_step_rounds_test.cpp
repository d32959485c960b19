// When K-step averaging ends its rounds: evaluation, flush, reports and counters.

#include <rondo/sync/k_step.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::k_step_rounds_test {
namespace {

using rondo::test::World;
using test::Arrays;
using test::iterate;
using testing::ElementsAreArray;

constexpr std::size_t size = 172;

Step step_of(const transport::World& world, int index, double rate = 0.125) {
  return {.index = index,
          .local_samples = 2,
          .global_samples = 2 * static_cast<std::size_t>(world.size()),
          .learning_rate = rate};
}

class KStepRoundsTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static int ranks() { return GetParam(); }
};

TEST_P(KStepRoundsTest, EvaluatesTheAverageAndLeavesTrainingAsItIs) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {1}, 1);
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(1, {}), {.period = 4, .momentum = {.mu = 0.5F}});
    const float rank = static_cast<float>(world.rank());
    const float mean_rank = static_cast<float>(world.size() - 1) / 2.0F;
    iterate(*scheme, arrays, step_of(world, 0, 1.0),
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

TEST_P(KStepRoundsTest, FlushEndsTheRoundInAPlainAverage) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {size}, 1);
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(size, {}), {.period = 4, .momentum = {.mu = 0.5F}});
    for (int step = 0; step < 6; ++step) {  // a round and a half
      iterate(*scheme, arrays, step_of(world, step), [&](std::size_t i, float w) {
        return 0.61F * w + 0.37F * static_cast<float>(
                                       (world.rank() * 14 + step * 3 + static_cast<int>(i)) % 13);
      });
    }
    std::vector<float> expected(size);
    std::vector<float> statistics(1);
    scheme->copy_for_evaluation(expected, statistics);
    const std::span<const float> velocity = scheme->replicated().at(1);
    const std::vector<float> before(velocity.begin(), velocity.end());

    scheme->flush();
    scheme->flush();  // and the second finds nothing to do

    EXPECT_THAT(arrays.parameters, ElementsAreArray(expected));
    EXPECT_THAT(scheme->replicated().at(0), ElementsAreArray(expected));
    EXPECT_THAT(scheme->replicated().at(1), ElementsAreArray(before));
    EXPECT_EQ(scheme->counters().global_reductions, world.size() == 1 ? 0U : 2U);
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
      iterate(*scheme, arrays, step_of(world, step, 0.5), [](std::size_t, float) { return 4.0F; });
    }
    scheme->flush();

    ASSERT_EQ(rounds.size(), 3U);
    EXPECT_EQ(rounds[1].index, 1);
    EXPECT_EQ(rounds[1].steps, 3);
    EXPECT_EQ(rounds[1].samples, 6 * world.size());
    EXPECT_EQ(rounds[1].displacement, 6.0);  // 4 elements go 3 steps of 1
    EXPECT_EQ(rounds[2].steps, 1);
    EXPECT_EQ(rounds[2].displacement, 2.0);
  });
}

TEST_P(KStepRoundsTest, CountsOneReductionPerRound) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {100, 20}, 6);
    const auto scheme = make_k_step(arrays.replica(), make_sgd(120, {}), {.period = 4});
    const std::uint64_t before = world.counters().operations;

    for (int step = 0; step < 13; ++step) {
      iterate(*scheme, arrays, step_of(world, step), [](std::size_t, float) { return 1.0F; });
    }

    const std::uint64_t rounds = world.size() == 1 ? 0 : 3;
    EXPECT_EQ(scheme->counters().global_reductions, rounds);
    EXPECT_EQ(scheme->counters().collectives, rounds);
    EXPECT_EQ(scheme->counters().global_bytes, rounds * 4 * (120 + 6 + 1));
    EXPECT_EQ(scheme->counters().local_reductions, 0U);
    EXPECT_EQ(scheme->counters().local_bytes, 0U);
    EXPECT_EQ(world.counters().operations - before, rounds);
  });
}

// The closed form of an allreduce in arenas: over all ranks 2 (P-1) times what a rank gives.
TEST_P(KStepRoundsTest, MovesTwiceTheModelOfEveryOtherRankOnceARound) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {20'000, 5'000}, 1'000);
    const auto scheme = make_k_step(arrays.replica(), make_sgd(25'000, {}), {.period = 5});

    for (int step = 0; step < 10; ++step) {
      iterate(*scheme, arrays, step_of(world, step), [](std::size_t, float) { return 1.0F; });
    }

    std::vector<std::int64_t> moved{static_cast<std::int64_t>(world.counters().moved_bytes())};
    world.communicator().allreduce(std::span(moved)).wait();
    EXPECT_EQ(moved[0], 2 * 2 * (world.size() - 1) * 26'001 * 4);
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, KStepRoundsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace rondo::sync::k_step_rounds_test
