// Clipping by the global norm.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/model_sums.hpp"

namespace rondo::sync::clip_test {
namespace {

TEST(ClipTest, ShortensToTheLargestNorm) {
  // A gradient of norm 8, scaled by 1/2, has norm 4.
  EXPECT_EQ(clip_factor(64.0, 0.5, 1.0), 0.25);
  EXPECT_EQ(clip_factor(64.0, 0.5, 2.0), 0.5);
}

TEST(ClipTest, LeavesAShortGradientAsItIs) {
  EXPECT_EQ(clip_factor(64.0, 0.5, 4.0), 1.0);
  EXPECT_EQ(clip_factor(64.0, 0.5, 5.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 0.5, 5.0), 1.0);
}

TEST(ClipTest, ANormOfZeroClipsNothing) {
  EXPECT_EQ(clip_factor(1e300, 1.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0, 0.0), 1.0);
}

TEST(ClipTest, DoesNotHideWhatIsNotANumber) { EXPECT_EQ(clip_factor(std::nan(""), 1.0, 1.0), 1.0); }

}  // namespace
}  // namespace rondo::sync::clip_test
