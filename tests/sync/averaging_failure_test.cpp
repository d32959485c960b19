// A rank that is lost before an average leaves nothing half averaged; options out of range and
// states that do not fit the round are refused.

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::averaging_failure_test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(AveragingFailureTest, ALostRankLeavesParametersAndStatisticsAsTheyWere) {
  rondo::test::World{3}.run_without(2, [](transport::World& world) {
    test::Arrays arrays(world, {5000}, 7);
    const auto scheme = make_k_step(arrays.replica(), make_sgd(5000, {.momentum = 0.0F}),
                                    {.period = 1, .momentum = {.mu = 0.5F}});
    const auto mine = static_cast<float>(world.rank() + 1);
    arrays.statistics.assign(7, mine);

    EXPECT_THROW(test::iterate(*scheme, arrays,
                               {.local_samples = 1, .global_samples = 3, .learning_rate = 1.0},
                               [&](std::size_t, float) { return -mine; }),
                 transport::Error);

    EXPECT_TRUE(rondo::test::all_are(arrays.parameters, mine));
    EXPECT_THAT(arrays.statistics, Each(mine));
    EXPECT_TRUE(rondo::test::all_are(scheme->replicated().at(0), 0.0F));
    EXPECT_TRUE(rondo::test::all_are(scheme->replicated().at(1), 0.0F));
  });
}

TEST(AveragingFailureTest, RefusesOptionsOutOfRange) {
  rondo::test::World{1}.run([](transport::World& world) {
    test::Arrays arrays(world, {5, 6});
    const auto making = [&](const KStepOptions& options) {
      return [&arrays, options] {
        static_cast<void>(make_k_step(arrays.replica(), make_sgd(11, {}), options));
      };
    };

    EXPECT_THAT(making({.period = 0}),
                ThrowsMessage<std::invalid_argument>(HasSubstr("k_step: the global period is 0")));
    EXPECT_THAT(
        making({.momentum = {.mu = 1.5F}}),
        ThrowsMessage<std::invalid_argument>(HasSubstr("k_step: a reduction momentum of 1.5")));
    EXPECT_THAT(making({.clip_norm = -1.0}),
                ThrowsMessage<std::invalid_argument>(HasSubstr("k_step: a clip_norm of -1.0")));
  });
}

TEST(AveragingFailureTest, AcceptsLayersWithAnInnerGroup) {
  rondo::test::World{1}.run([](transport::World& world) {
    transport::Communicator other = world.communicator().split(0);
    test::Arrays arrays(world, {5, 6});
    Replica replica = arrays.replica();
    replica.layers[1].groups.inner = &other;

    EXPECT_NO_THROW(static_cast<void>(make_k_step(replica, make_sgd(11, {}))));
  });
}

TEST(AveragingFailureTest, RefusesAStateThatIsNotInTheRound) {
  rondo::test::World{1}.run([](transport::World& world) {
    test::Arrays arrays(world, {50});
    const auto slow = make_k_step(arrays.replica(), make_sgd(50, {}), {.period = 4});
    const auto fast = make_k_step(arrays.replica(), make_sgd(50, {}), {.period = 2});
    for (int step = 0; step < 3; ++step) {
      test::iterate(*slow, arrays,
                    {.index = step, .local_samples = 1, .global_samples = 1, .learning_rate = 0.1},
                    [](std::size_t, float w) { return w + 1.0F; });
    }

    EXPECT_THAT([&] { fast->restore(slow->save()); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(
                    "k_step: the state was saved after 3 steps of a round, which has 2 here")));
  });
}

}  // namespace
}  // namespace rondo::sync::averaging_failure_test
