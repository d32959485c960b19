// The mean of batch norm's running statistics over the ranks.

#include <rondo/sync/scheme_base.hpp>

#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/world.hpp"

namespace rondo::sync::statistics_mean_test {
namespace {

using rondo::test::World;
using testing::Each;
using testing::ElementsAre;

TEST(StatisticsMeanTest, RanksThatAgreeGetBackWhatTheyGave) {
  World{3}.run([](transport::World& world) {
    std::vector<float> held(2);
    StatisticsMean mean({.world = &world, .statistics = held});
    const std::vector<float> mine{0.1F, 1e-30F};
    std::vector<float> result(2);

    mean.compute(mine, result);

    EXPECT_THAT(result, ElementsAre(0.1F, 1e-30F));
  });
}

TEST(StatisticsMeanTest, IsTheMeanToTheLastBit) {
  World{4}.run([](transport::World& world) {
    std::vector<float> held(10);
    StatisticsMean mean({.world = &world, .statistics = held});
    // In fp32 the three ones would be lost beside 2^26.
    const std::vector<float> mine(10, world.rank() == 0 ? 67'108'864.0F : 1.0F);
    std::vector<float> result(10);

    mean.compute(mine, result);

    EXPECT_THAT(result, Each(static_cast<float>((67'108'864.0 + 3.0) / 4.0)));
  });
}

TEST(StatisticsMeanTest, OneRankCopies) {
  World{1}.run([](transport::World& world) {
    std::vector<float> held(1);
    StatisticsMean mean({.world = &world, .statistics = held});
    std::vector<float> result(1);

    mean.compute(std::vector<float>{7.0F}, result);

    EXPECT_FALSE(mean.reduces());
    EXPECT_THAT(result, ElementsAre(7.0F));
  });
}

TEST(StatisticsMeanTest, IsTakenOverTheRanksThatAreNamed) {
  World{4}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    std::vector<float> held(1);
    StatisticsMean mean({.world = &world, .statistics = held, .statistics_over = &pair});
    std::vector<float> result(1);

    mean.compute(std::vector<float>{static_cast<float>(world.rank())}, result);

    EXPECT_THAT(result, ElementsAre(world.rank() < 2 ? 0.5F : 2.5F));
  });
}

TEST(StatisticsMeanTest, NothingIsNotReduced) {
  World{2}.run([](transport::World& world) {
    std::vector<float> held(1);
    EXPECT_FALSE(StatisticsMean({.world = &world}).reduces());
    EXPECT_TRUE(StatisticsMean({.world = &world, .statistics = held}).reduces());
  });
}

}  // namespace
}  // namespace rondo::sync::statistics_mean_test
