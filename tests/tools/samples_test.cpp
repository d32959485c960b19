#include "bench/samples.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace rondo::tools::samples_test {
namespace {

TEST(SamplesTest, FindsMinimumMedianAndP99InAnyOrder) {
  std::vector<double> samples(101);
  std::iota(samples.rbegin(), samples.rend(), 0.0);

  const Summary summary = summarize(samples);

  EXPECT_EQ(summary.min_us, 0.0);
  EXPECT_EQ(summary.median_us, 50.0);
  EXPECT_EQ(summary.p99_us, 99.0);
}

TEST(SamplesTest, TakesOneSampleForAll) {
  const Summary summary = summarize({3.0});

  EXPECT_EQ(summary.min_us, 3.0);
  EXPECT_EQ(summary.median_us, 3.0);
  EXPECT_EQ(summary.p99_us, 3.0);
}

TEST(SamplesTest, RefusesNone) {
  EXPECT_THROW(static_cast<void>(summarize({})), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tools::samples_test
