#include "bench/line_fit.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace rondo::tools::line_fit_test {
namespace {

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
}  // namespace rondo::tools::line_fit_test
