// A rank that is lost before an average leaves nothing half averaged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/iterate.hpp"

namespace rondo::sync::averaging_failure_test {
namespace {

using testing::Each;

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

}  // namespace
}  // namespace rondo::sync::averaging_failure_test
