// Batch norm (+ residual) (+ ReLU) against plain loops in double.

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "nearness.hpp"
#include "reference/batch_norm.hpp"

namespace rondo::tensor::batch_norm_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;
using testing::Each;
using testing::ElementsAreArray;

// What fp32 arithmetic with double sums keeps of a mean of 0.5 and a deviation of 2.
constexpr double rounding = 2e-6;

// One layer, its data, and its results.
struct Trial {
  Trial(const BatchNormSpec& given, int threads, float mean = 0.5F, float deviation = 2.0F)
      : spec(given),
        engine(threads),
        layer(engine, spec),
        x(normal_tensor(spec.input, 1, mean, deviation)),
        residual(normal_tensor(spec.residual ? spec.input : Shape{}, 2)),
        dy(normal_tensor(spec.input, 3)),
        scale(normal_values(spec.input.c, 4, 1.0F, 0.3F)),
        shift(normal_values(spec.input.c, 5)),
        running_mean(normal_values(spec.input.c, 6)),
        running_variance(normal_values(spec.input.c, 7, 2.0F, 0.1F)),
        y(spec.input),
        dx(spec.input),
        dscale(scale.size(), -1.0F),
        dshift(scale.size(), -1.0F) {}

  [[nodiscard]] BatchNormParameters p() const { return {scale, shift}; }

  void forward() {
    layer.forward_training(x.view(), residual.view(), p(), running_mean, running_variance,
                           y.view());
  }
  void backward() { layer.backward(x.view(), y.view(), p(), dy.view(), dx.view(), dscale, dshift); }

  BatchNormSpec spec;
  Engine engine;
  BatchNorm layer;
  Tensor x, residual, dy;
  std::vector<float> scale, shift, running_mean, running_variance;
  Tensor y, dx;
  std::vector<float> dscale, dshift;
};

// Channels, activation, residual, threads.
class BatchNormTest
    : public testing::TestWithParam<std::tuple<std::int64_t, Activation, bool, int>> {
 protected:
  [[nodiscard]] static BatchNormSpec spec() {
    const auto [channels, activation, residual, threads] = GetParam();
    return {.input = {3, 7, 5, channels}, .activation = activation, .residual = residual};
  }
  [[nodiscard]] static int threads() { return std::get<3>(GetParam()); }
};

TEST_P(BatchNormTest, ForwardEqualsPlainLoops) {
  Trial trial(spec(), threads());
  trial.forward();
  const auto expected = reference::batch_norm(trial.spec, trial.x, trial.residual, trial.p(),
                                              reference::moments(trial.x));
  EXPECT_LT(relative_distance(trial.y.span(), expected.span()), rounding);
}

TEST_P(BatchNormTest, RunningValuesMoveTowardsTheUnbiasedBatch) {
  Trial trial(spec(), threads());
  const auto old_mean = trial.running_mean;
  const auto old_variance = trial.running_variance;
  trial.forward();
  const auto by = reference::moments(trial.x);
  constexpr double samples = 3 * 7 * 5;
  for (std::size_t c = 0; c < old_mean.size(); ++c) {
    EXPECT_NEAR(trial.running_mean[c], 0.9 * old_mean[c] + 0.1 * by.mean[c], 1e-6);
    EXPECT_NEAR(trial.running_variance[c],
                0.9 * old_variance[c] + 0.1 * by.variance[c] * samples / (samples - 1), 1e-6);
  }
}

TEST_P(BatchNormTest, BackwardEqualsPlainLoops) {
  Trial trial(spec(), threads());
  trial.forward();
  const auto expected =
      reference::batch_norm_backward(trial.spec, trial.x, trial.y, trial.p(), trial.dy);
  trial.backward();
  EXPECT_LT(relative_distance(trial.dx.span(), expected.x.span()), rounding);
  EXPECT_LT(relative_distance(trial.dscale, expected.scale), rounding);
  EXPECT_LT(relative_distance(trial.dshift, expected.shift), rounding);
  if (trial.spec.residual) {
    EXPECT_THAT(trial.dy.span(), ElementsAreArray(expected.residual.span()));
  }
}

TEST_P(BatchNormTest, BackwardAddsAnotherReadersGradient) {
  Trial trial(spec(), threads());
  Trial summed(spec(), threads());
  const Tensor also = normal_tensor(trial.spec.input, 8);
  for (std::size_t i = 0; i < also.span().size(); ++i) summed.dy.span()[i] += also.span()[i];
  trial.forward();
  summed.forward();
  summed.backward();
  trial.layer.backward(trial.x.view(), trial.y.view(), trial.p(), trial.dy.view(), trial.dx.view(),
                       trial.dscale, trial.dshift, also.view());
  EXPECT_THAT(trial.dx.span(), ElementsAreArray(summed.dx.span()));
  EXPECT_EQ(trial.dscale, summed.dscale);
  EXPECT_EQ(trial.dshift, summed.dshift);
  if (trial.spec.residual) {
    EXPECT_THAT(trial.dy.span(), ElementsAreArray(summed.dy.span()));
  }
}

TEST_P(BatchNormTest, InferenceUsesTheRunningValues) {
  Trial trial(spec(), threads());
  trial.layer.forward_inference(trial.x.view(), trial.residual.view(), trial.p(),
                                trial.running_mean, trial.running_variance, trial.y.view());
  const reference::Moments by{{trial.running_mean.begin(), trial.running_mean.end()},
                              {trial.running_variance.begin(), trial.running_variance.end()}};
  const auto expected = reference::batch_norm(trial.spec, trial.x, trial.residual, trial.p(), by);
  EXPECT_LT(relative_distance(trial.y.span(), expected.span()), rounding);
}

INSTANTIATE_TEST_SUITE_P(Channels, BatchNormTest,
                         testing::Combine(testing::Values(1, 3, 6, 16, 17, 24, 32, 64, 100, 128),
                                          testing::Values(Activation::none, Activation::relu),
                                          testing::Bool(), testing::Values(1, 3)));

TEST(BatchNormAccuracyTest, ALargeMeanBesideASmallDeviationDoesNotCancel) {
  Trial trial({.input = {8, 16, 16, 16}, .activation = Activation::none}, 1, 1000.0F, 0.1F);
  trial.forward();
  const auto expected = reference::batch_norm(trial.spec, trial.x, trial.residual, trial.p(),
                                              reference::moments(trial.x));
  // The values themselves are rounded to 6e-5, which is 6e-4 of their deviation.
  constexpr double rounding_of_the_mean = 1e-3;
  EXPECT_LT(relative_distance(trial.y.span(), expected.span()), rounding_of_the_mean);
}

TEST(BatchNormAccuracyTest, AConstantChannelHasNoVariance) {
  Trial trial({.input = {2, 9, 9, 5}, .activation = Activation::none}, 1, 3.3F, 0.0F);
  trial.forward();
  for (std::size_t i = 0; i < trial.y.span().size(); ++i) {
    EXPECT_EQ(trial.y.span()[i], trial.shift[i % 5]);
  }
}

TEST(BatchNormAccuracyTest, NotANumberIsPassedOn) {
  Trial trial({.input = {1, 4, 4, 16}}, 1);
  trial.x.span()[16 * 5 + 2] = std::numeric_limits<float>::quiet_NaN();
  trial.forward();
  for (std::size_t i = 0; i < trial.y.span().size(); ++i) {
    EXPECT_EQ(std::isnan(trial.y.span()[i]), i % 16 == 2) << i;
  }
}

TEST(BatchNormEdgeTest, AnEmptyBatchLeavesZeroGradientsAndTheRunningValues) {
  Trial trial({.input = {0, 4, 4, 16}, .residual = true}, 2);
  const auto mean = trial.running_mean;
  const auto variance = trial.running_variance;
  trial.forward();
  trial.backward();
  EXPECT_EQ(trial.running_mean, mean);
  EXPECT_EQ(trial.running_variance, variance);
  EXPECT_THAT(trial.dscale, Each(0.0F));
  EXPECT_THAT(trial.dshift, Each(0.0F));
}

TEST(BatchNormEdgeTest, FewerImagesThanTheSpecAreAllowed) {
  const BatchNormSpec spec{.input = {5, 4, 4, 16}};
  Trial trial(spec, 1);
  Trial two({.input = spec.input.with_n(2)}, 1);
  std::ranges::copy(trial.x.span().first(two.x.span().size()), two.x.span().begin());
  two.forward();
  trial.layer.forward_training(trial.x.first(2), {}, trial.p(), trial.running_mean,
                               trial.running_variance, trial.y.first(2));
  EXPECT_THAT(trial.y.span().first(two.y.span().size()), ElementsAreArray(two.y.span()));
}

TEST(BatchNormEdgeTest, BackwardMayOverwriteItsInput) {
  const BatchNormSpec spec{.input = {4, 6, 6, 32}};
  Trial apart(spec, 1);
  apart.forward();
  apart.backward();
  Trial in_place(spec, 1);
  in_place.forward();
  in_place.layer.backward(in_place.x.view(), in_place.y.view(), in_place.p(), in_place.dy.view(),
                          in_place.dy.view(), in_place.dscale, in_place.dshift);
  EXPECT_THAT(in_place.dy.span(), ElementsAreArray(apart.dx.span()));
}

TEST(BatchNormEdgeTest, RefusesAnotherShape) {
  Trial trial({.input = {2, 4, 4, 16}}, 1);
  Tensor other({2, 4, 4, 8});
  EXPECT_THROW(trial.layer.forward_training(other.view(), {}, trial.p(), trial.running_mean,
                                            trial.running_variance, trial.y.view()),
               std::invalid_argument);
  EXPECT_THROW(Trial({.input = {2, 0, 4, 16}}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tensor::batch_norm_test
