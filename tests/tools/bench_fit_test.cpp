// What is concluded from measured times.

#include "bench/tune.hpp"

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace rondo::tools::bench_fit_test {
namespace {

TEST(AlgorithmTableTest, ChangesWhereTheOtherBecomesFaster) {
  EXPECT_EQ(
      best_table({1024, 4096, 65536, 262144}, {{"rd", {1, 2, 30, 100}}, {"ring", {5, 5, 20, 40}}}),
      "rd:0-16k;ring:16k-max");
}

TEST(AlgorithmTableTest, KeepsOneThatIsAlwaysFaster) {
  EXPECT_EQ(best_table({1024, 4096}, {{"rd", {1, 2}}, {"ring", {5, 5}}}), "rd:0-max");
  EXPECT_EQ(best_table({1024, 4096}, {{"rd", {8, 9}}, {"ring", {5, 5}}}), "ring:0-max");
}

// A single slow sample must not cut the table into pieces.
TEST(AlgorithmTableTest, DoesNotReturnToWhatItLeft) {
  EXPECT_EQ(best_table({256, 1024, 4096, 16384, 65536},
                       {{"rd", {1, 6, 3, 20, 99}}, {"ring", {5, 5, 9, 9, 9}}}),
            "rd:0-8k;ring:8k-max");
}

TEST(AlgorithmTableTest, OrdersThreeAlgorithms) {
  EXPECT_EQ(best_table({1024, 4096, 16384}, {{"a", {1, 9, 9}}, {"b", {9, 1, 9}}, {"c", {9, 9, 1}}}),
            "a:0-2k;b:2k-8k;c:8k-max");
}

TEST(AlgorithmTableTest, RefusesToChooseAmongNothing) {
  EXPECT_THROW(static_cast<void>(best_table({}, {{"rd", {}}})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(best_table({1024}, {})), std::invalid_argument);
}

TEST(AlgorithmTableTest, WritesSizesInWholeUnits) {
  EXPECT_EQ(short_size(0), "0");
  EXPECT_EQ(short_size(1000), "1000");
  EXPECT_EQ(short_size(1536 * 1024), "1536k");
  EXPECT_EQ(short_size(2 * 1024 * 1024), "2m");
}

TEST(LineFitTest, FindsTheLineOnWhichAllTimesLie) {
  const std::vector<TimedSize> samples = {
      {8, 2e-6 + 8e-9}, {1024, 2e-6 + 1024e-9}, {1 << 20, 2e-6 + (1 << 20) * 1e-9}};

  const LineFit fit = fit_line(samples);

  EXPECT_NEAR(fit.alpha_seconds, 2e-6, 1e-12);
  EXPECT_NEAR(fit.beta_seconds_per_byte, 1e-9, 1e-15);
}

// By absolute errors the latency would be whatever the largest size leaves over.
TEST(LineFitTest, LetsSmallMessagesCountAsMuchAsLargeOnes) {
  const std::vector<TimedSize> samples = {
      {8, 1e-6}, {16, 1e-6}, {1 << 24, 1.1e-2}, {1 << 26, 3.6e-2}};

  EXPECT_NEAR(fit_line(samples).alpha_seconds, 1e-6, 1e-7);
}

TEST(LineFitTest, HasNoNegativeLatency) {
  const std::vector<TimedSize> samples = {{1000, 1e-7}, {2000, 1e-5}};

  EXPECT_EQ(fit_line(samples).alpha_seconds, 0.0);
  EXPECT_GT(fit_line(samples).beta_seconds_per_byte, 0.0);
}

TEST(LineFitTest, HasNoNegativeCostOfBytes) {
  const std::vector<TimedSize> samples = {{1000, 2e-6}, {2000, 1e-6}};

  EXPECT_EQ(fit_line(samples).beta_seconds_per_byte, 0.0);
  EXPECT_GT(fit_line(samples).alpha_seconds, 0.0);
}

TEST(LineFitTest, RefusesASingleSize) {
  const std::vector<TimedSize> samples = {{8, 1e-6}, {8, 2e-6}};

  EXPECT_THROW(static_cast<void>(fit_line(samples)), std::invalid_argument);
}

TEST(LineFitTest, RefusesATimeOfNothing) {
  const std::vector<TimedSize> samples = {{8, 0.0}, {16, 1e-6}};

  EXPECT_THROW(static_cast<void>(fit_line(samples)), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tools::bench_fit_test
