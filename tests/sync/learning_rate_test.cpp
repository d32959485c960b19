#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>

namespace rondo::sync::learning_rate_test {
namespace {

TEST(LearningRateTest, WarmsUpLinearlyToTheBase) {
  const LearningRate rate{.base = 1.0, .warmup_steps = 4, .total_steps = 10};

  EXPECT_DOUBLE_EQ(rate.at(0), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(3), 1.0);
}

TEST(LearningRateTest, StaysConstant) {
  const LearningRate rate{.base = 0.5, .decay = Decay::constant, .total_steps = 10};

  EXPECT_DOUBLE_EQ(rate.at(0), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(9), 0.5);
}

TEST(LearningRateTest, FollowsHalfACosineToTheFinalRate) {
  const LearningRate rate{.base = 1.0, .final_rate = 0.2, .warmup_steps = 2, .total_steps = 10};

  EXPECT_DOUBLE_EQ(rate.at(2), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(6), 0.6);
  EXPECT_DOUBLE_EQ(rate.at(10), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(11), 0.2);
}

TEST(LearningRateTest, FallsByTheFactorAtEveryMilestone) {
  const LearningRate rate{.base = 1.0, .decay = Decay::steps, .milestones = {4, 6}, .factor = 0.5};

  EXPECT_EQ(rate.at(3), 1.0);
  EXPECT_EQ(rate.at(4), 0.5);
  EXPECT_EQ(rate.at(5), 0.5);
  EXPECT_EQ(rate.at(6), 0.25);
  EXPECT_EQ(rate.at(1000), 0.25);
}

TEST(LearningRateTest, MilestonesWithinTheWarmUpCountAfterIt) {
  const LearningRate rate{
      .base = 1.0, .decay = Decay::steps, .warmup_steps = 4, .milestones = {8, 2}, .factor = 0.25};

  EXPECT_EQ(rate.at(0), 0.25);
  EXPECT_EQ(rate.at(2), 0.75);
  EXPECT_EQ(rate.at(3), 1.0);
  EXPECT_EQ(rate.at(4), 0.25);
  EXPECT_EQ(rate.at(7), 0.25);
  EXPECT_EQ(rate.at(8), 0.0625);
}

TEST(LearningRateTest, WithoutMilestonesTheStepsAreConstant) {
  const LearningRate rate{.base = 0.5, .decay = Decay::steps};

  EXPECT_EQ(rate.at(9), 0.5);
}

}  // namespace
}  // namespace rondo::sync::learning_rate_test
