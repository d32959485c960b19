// Which layers' reductions backward cannot hide: a pure function of measured times.

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/sync/lazy.hpp>

namespace rondo::sync::unhidden_layers_test {
namespace {

using Seconds = std::vector<double>;

TEST(UnhiddenLayersTest, NoLayersAreHidden) { EXPECT_EQ(count_unhidden_layers({}, {}), 0U); }

TEST(UnhiddenLayersTest, TheFirstLayerCannotHideAReductionThatTakesTime) {
  EXPECT_EQ(count_unhidden_layers(Seconds{0, 10, 20}, Seconds{1, 1, 1}), 1U);
}

TEST(UnhiddenLayersTest, HidesAllLayersWhoseReductionTakesNoTime) {
  EXPECT_EQ(count_unhidden_layers(Seconds{0, 10, 20}, Seconds{0, 0, 0}), 0U);
}

TEST(UnhiddenLayersTest, HidesAReductionThatEndsWithBackward) {
  EXPECT_EQ(count_unhidden_layers(Seconds{0, 10, 20}, Seconds{1, 10, 10}), 1U);
}

TEST(UnhiddenLayersTest, HidesNoLayerWhoseReductionOutlastsBackward) {
  EXPECT_EQ(count_unhidden_layers(Seconds{0, 10, 20}, Seconds{1, 11, 1}), 2U);
}

// Layer 2 is final at -20 and reduced until -5; only then can layer 1 be, until +3.
TEST(UnhiddenLayersTest, LetsReductionsWaitForThoseBeforeThem) {
  EXPECT_EQ(count_unhidden_layers(Seconds{0, 10, 20}, Seconds{1, 8, 15}), 2U);
}

TEST(UnhiddenLayersTest, MayHideNothing) {
  EXPECT_EQ(count_unhidden_layers(Seconds{0, 1, 2}, Seconds{1, 1, 100}), 3U);
}

// A lazy layer is not reduced in the iteration, so it delays no layer that is.
TEST(UnhiddenLayersTest, MoreTimeForReductionsNeverHidesMore) {
  const Seconds left{0, 1, 3, 6, 10};
  std::size_t least = 0;
  for (double seconds = 0.0; seconds < 12.0; seconds += 0.5) {
    const std::size_t count = count_unhidden_layers(left, Seconds(5, seconds));

    EXPECT_GE(count, least) << seconds;
    least = count;
  }
  EXPECT_EQ(least, 5U);
}

TEST(UnhiddenLayersTest, RefusesTimesThatDoNotFit) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_THROW(static_cast<void>(count_unhidden_layers(Seconds{1}, Seconds{1, 2})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(count_unhidden_layers(Seconds{1}, Seconds{-1})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(count_unhidden_layers(Seconds{nan}, Seconds{1})),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::sync::unhidden_layers_test
