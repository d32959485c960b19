// Several threads compute what one does, to rounding.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/support/network.hpp"

namespace rondo::train::threads_test {
namespace {

constexpr double rounding = 1e-3;  // relative, of gradients through 20 layers and batch norms
constexpr std::int64_t samples = 6;

class ThreadsTest : public testing::TestWithParam<std::string> {};

TEST_P(ThreadsTest, ChangeTheGradientsByRoundingOnly) {
  test::Network one(make_model(GetParam()), {.training_batches = {samples}}, 1);
  const test::Samples data = test::make_samples(one.model, samples);
  const tensor::Loss expected = one.train(data.batch());

  for (const int threads : {2, 3}) {
    test::Network several(make_model(GetParam()), {.training_batches = {samples}}, threads);
    const tensor::Loss loss = several.train(data.batch());

    EXPECT_NEAR(loss.sum / expected.sum, 1.0, rounding) << threads;
    EXPECT_LT(test::relative_distance(several.gradients, one.gradients), rounding) << threads;
    EXPECT_EQ(loss.correct, expected.correct) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ThreadsTest, testing::ValuesIn(test::quick_models()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace rondo::train::threads_test
