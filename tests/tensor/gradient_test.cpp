// Finite differences: every layer's backward is the slope of its forward. The scalar that is
// differentiated is sum(forward(x) * direction), so that dy = direction.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"

namespace rondo::tensor::gradient_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.span().size(); ++i) {
    sum += static_cast<double>(a.span()[i]) * static_cast<double>(b.span()[i]);
  }
  return sum;
}

// The slope of `value` along every one of `variables`, by central differences.
std::vector<float> slopes(std::span<float> variables, const std::function<double()>& value,
                          float step) {
  std::vector<float> result;
  for (float& variable : variables) {
    const float old = variable;
    variable = old + step;
    const double above = value();
    variable = old - step;
    const double below = value();
    variable = old;
    result.push_back(static_cast<float>((above - below) / (2.0 * static_cast<double>(step))));
  }
  return result;
}

// Linear layers: a wide step has no truncation error, only fp32's rounding.
constexpr float wide_step = 0.5F;
constexpr double rounding = 1e-5;
// Batch norm bends, and a few elements cross the ReLU's kink.
constexpr float small_step = 0x1p-7F;
constexpr double truncation = 5e-3;

/// Checks a layer with weights and `biases`, along its input and both.
template <class Layer, class Spec>
void expect_slopes(const Spec& spec, std::int64_t biases) {
  Engine engine;
  Layer layer(engine, spec);
  Tensor x = normal_tensor(spec.input, 1);
  auto weights = normal_values(spec.weights(), 2);
  auto bias = normal_values(biases, 3);
  const Tensor direction = normal_tensor(spec.output(), 4);
  Tensor y(spec.output());
  const auto value = [&] {
    layer.pack_weights(weights);
    layer.forward(x.view(), bias, y.view());
    return dot(y, direction);
  };
  value();
  Tensor dx(spec.input);
  std::vector<float> dw(weights.size());
  std::vector<float> db(bias.size());
  layer.backward_data(direction.view(), dx.view());
  layer.backward_weights(x.view(), direction.view(), db);
  layer.unpack_gradients(dw);
  EXPECT_LT(relative_distance(dx.span(), slopes(x.span(), value, wide_step)), rounding);
  EXPECT_LT(relative_distance(dw, slopes(weights, value, wide_step)), rounding);
  EXPECT_LT(relative_distance(db, slopes(bias, value, wide_step)), rounding);
}

TEST(GradientTest, OfConvolutionIsItsSlope) {
  expect_slopes<Convolution>(ConvolutionSpec{.input = {2, 5, 4, 3},
                                             .filters = 4,
                                             .kernel_h = 3,
                                             .kernel_w = 3,
                                             .stride = 2,
                                             .pad_top = 1,
                                             .pad_left = 1,
                                             .bias = true},
                             4);
}

TEST(GradientTest, OfFullyConnectedIsItsSlope) {
  expect_slopes<FullyConnected>(FullyConnectedSpec{.input = {3, 2, 2, 3}, .outputs = 5}, 5);
}

class PoolingGradientTest : public testing::TestWithParam<PoolingKind> {};

TEST_P(PoolingGradientTest, IsItsSlope) {
  Engine engine;
  const PoolingSpec spec{.input = {2, 4, 6, 3}, .kind = GetParam()};
  Pooling layer(engine, spec);
  Tensor x = test::whole_tensor(spec.input, 1, 1000);  // far from ties
  const Tensor direction = normal_tensor(spec.output(), 2);
  Tensor y(spec.output());
  const auto value = [&] {
    layer.forward(x.view(), y.view());
    return dot(y, direction);
  };
  value();
  Tensor dx(spec.input);
  layer.backward(direction.view(), dx.view());
  EXPECT_LT(relative_distance(dx.span(), slopes(x.span(), value, wide_step / 2)), rounding);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PoolingGradientTest,
                         testing::Values(PoolingKind::max, PoolingKind::average));

class BatchNormGradientTest : public testing::TestWithParam<std::tuple<Activation, bool>> {};

TEST_P(BatchNormGradientTest, IsItsSlope) {
  Engine engine;
  const auto [activation, has_residual] = GetParam();
  const BatchNormSpec spec{
      .input = {2, 3, 4, 5}, .activation = activation, .residual = has_residual};
  BatchNorm layer(engine, spec);
  Tensor x = normal_tensor(spec.input, 1);
  Tensor residual = normal_tensor(has_residual ? spec.input : Shape{}, 2);
  auto scale = normal_values(spec.input.c, 3, 1.0F, 0.2F);
  auto shift = normal_values(spec.input.c, 4);
  Tensor direction = normal_tensor(spec.input, 5);
  std::vector<float> mean(scale.size());
  std::vector<float> variance(scale.size());
  Tensor y(spec.input);
  const auto value = [&] {
    layer.forward_training(x.view(), residual.view(), {scale, shift}, mean, variance, y.view());
    return dot(y, direction);
  };
  const auto slope_of = [&](std::span<float> variables) {
    return slopes(variables, value, small_step);
  };
  const auto x_slopes = slope_of(x.span());
  const auto scale_slopes = slope_of(scale);
  const auto shift_slopes = slope_of(shift);
  const auto residual_slopes = slope_of(residual.span());
  value();
  Tensor dx(spec.input);
  std::vector<float> dscale(scale.size());
  std::vector<float> dshift(scale.size());
  layer.backward(x.view(), y.view(), {scale, shift}, direction.view(), dx.view(), dscale, dshift);
  EXPECT_LT(relative_distance(dx.span(), x_slopes), truncation);
  EXPECT_LT(relative_distance(dscale, scale_slopes), truncation);
  EXPECT_LT(relative_distance(dshift, shift_slopes), truncation);
  if (has_residual) {
    EXPECT_LT(relative_distance(direction.span(), residual_slopes), truncation);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BatchNormGradientTest,
                         testing::Combine(testing::Values(Activation::none, Activation::relu),
                                          testing::Bool()));

}  // namespace
}  // namespace rondo::tensor::gradient_test
