#include <gtest/gtest.h>

#include <rondo/sync/learning_rate.hpp>

namespace rondo::sync {
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

}  // namespace
}  // namespace rondo::sync
