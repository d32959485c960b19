// The results of a learning-rate sweep: where the loss falls fastest, and where training diverges.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "find_rate.hpp"

namespace rondo::tools::rate_sweep_test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

std::vector<double> powers_of_two(std::size_t count) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < count; ++i) rates.push_back(std::exp2(static_cast<double>(i)));
  return rates;
}

TEST(RateSweepTest, SuggestsTheRateAtWhichTheLossFallsFastest) {
  const std::vector<double> losses = {2, 2, 2, 2, 1, 0.2, 0.2, 0.2, 0.2, 0.2};

  const RateSweep sweep = analyse_rates(powers_of_two(10), losses);

  ASSERT_TRUE(sweep.suggestion.has_value());
  EXPECT_EQ(*sweep.suggestion, 16.0);  // from 2 to 1, before smoothing hides how steep it is
  EXPECT_EQ(sweep.lowest, 512.0);
  EXPECT_FALSE(sweep.diverged_at.has_value());
}

TEST(SmoothedLossTest, EndsWhereTheMeanIsFourTimesTheLeast) {
  SmoothedLoss loss;
  EXPECT_EQ(loss.add(1.0), 1.0);
  EXPECT_EQ(loss.add(1.0), 1.0);
  EXPECT_TRUE(loss.add(4.0).has_value());  // the mean is less
  EXPECT_FALSE(loss.add(100.0).has_value());
  EXPECT_FALSE(SmoothedLoss().add(NAN).has_value());
}

TEST(RateSweepTest, EndsWhereTheLossIsFourTimesTheLeast) {
  const RateSweep sweep = analyse_rates(powers_of_two(5), {1, 1, 1, 20, 1});

  EXPECT_EQ(sweep.diverged_at, 8.0);
  EXPECT_THAT(sweep.points, SizeIs(3));
}

TEST(RateSweepTest, EndsWhereTheLossIsNoNumber) {
  EXPECT_EQ(analyse_rates(powers_of_two(3), {1, NAN, 1}).diverged_at, 2.0);
  EXPECT_THAT(analyse_rates(powers_of_two(1), {NAN}).points, IsEmpty());
}

TEST(RateSweepTest, SuggestsNothingWhereTheLossDoesNotFall) {
  EXPECT_FALSE(analyse_rates(powers_of_two(4), {1, 1, 1, 1}).suggestion.has_value());
  EXPECT_FALSE(analyse_rates({}, {}).suggestion.has_value());
}

// A loss of 1 stays 1, however few have been averaged.
TEST(RateSweepTest, SmoothsWithoutABiasTowardsZero) {
  const RateSweep sweep = analyse_rates(powers_of_two(3), {1, 1, 1});

  for (const RatePoint& point : sweep.points) EXPECT_DOUBLE_EQ(point.smoothed, 1.0);
}

}  // namespace
}  // namespace rondo::tools::rate_sweep_test
