// Finite differences of whole networks: the gradient of every parameter, through every layer.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/support/network.hpp"

namespace rondo::train::gradient_test {
namespace {

using test::make_samples;
using test::Network;
using test::Samples;

constexpr std::int64_t samples_per_batch = 4;
constexpr float step = 4e-3F;
// Of the largest slope in the group: the loss is computed in fp32, and differences of two losses
// keep about three digits.
constexpr double tolerance = 1e-2;

double loss_with(Network& net, const Samples& samples, std::size_t element, float value) {
  const float old = std::exchange(net.parameters[element], value);
  const double loss = net.train(samples.batch()).sum;
  net.parameters[element] = old;
  return loss;
}

double slope(Network& net, const Samples& samples, std::size_t element) {
  const float at = net.parameters[element];
  const double above = loss_with(net, samples, element, at + step);
  const double below = loss_with(net, samples, element, at - step);
  return (above - below) / (2.0 * static_cast<double>(step));
}

double largest(std::span<const float> values) {
  double result = 0.0;
  for (const float value : values) result = std::max(result, std::abs(static_cast<double>(value)));
  return result;
}

void expect_gradients_are_slopes(Model model) {
  Network net(std::move(model), {.training_batches = {samples_per_batch}});
  const Samples samples = make_samples(net.model, samples_per_batch);
  net.train(samples.batch());
  const std::vector<float> gradients = net.gradients;

  for (const Parameter& parameter : net.layout.parameters) {
    const double scale =
        std::max(0.1, largest(std::span(gradients).subspan(parameter.offset, parameter.size())));
    const std::size_t stride = std::max<std::size_t>(1, parameter.size() / 16);
    for (std::size_t i = 0; i < parameter.size(); i += stride) {
      const std::size_t element = parameter.offset + i;
      EXPECT_NEAR(slope(net, samples, element), static_cast<double>(gradients[element]),
                  tolerance * scale)
          << parameter.name << " element " << i;
    }
  }
}

TEST(GradientTest, AgreesWithSlopesThroughShortcutsAndBatchNorm) {
  expect_gradients_are_slopes(test::small_residual_model());
}

TEST(GradientTest, AgreesWithSlopesThroughBiasesPoolingAndFullyConnected) {
  Model model{.name = "plain", .input = {1, 8, 8, 1}, .classes = 3};
  model.layers = {
      {"conv1", ConvolutionLayer{.filters = 4, .bias = true}, {0}},
      {"pool1", PoolingLayer{.kind = tensor::PoolingKind::average}, {1}},
      {"conv2", ConvolutionLayer{.filters = 6, .padding = 0, .bias = true}, {2}},
      {"fc1", FullyConnectedLayer{.outputs = 5}, {3}},
      {"fc2", FullyConnectedLayer{.outputs = 3}, {4}},
  };

  expect_gradients_are_slopes(model);
}

// Values with several readers, layers with several inputs, and a dropout that drops the same each
// time: all calls are of one step.
TEST(GradientTest, AgreesWithSlopesThroughSumsConcatenationsGroupsAndDropout) {
  Model model{.name = "joined", .input = {1, 6, 6, 4}, .classes = 3};
  model.layers = {
      {"groups", ConvolutionLayer{.filters = 8, .groups = 2, .bias = true}, {0}},
      {"depthwise", ConvolutionLayer{.filters = 8, .groups = 8}, {1}},
      {"sum", AddLayer{}, {1, 2, 1}},
      {"joined", ConcatLayer{}, {1, 3, 2, 0}},
      {"drop", DropoutLayer{.probability = 0.25}, {4}},
      {"conv", ConvolutionLayer{.filters = 6, .stride = 2}, {5}},
      {"bn", BatchNormLayer{.activation = tensor::Activation::none}, {6}},
      {"twice", AddLayer{}, {7, 7}},
      {"wide", ConcatLayer{}, {8, 7}},
      {"pool", GlobalAveragePoolingLayer{}, {9}},
      {"fc", FullyConnectedLayer{.outputs = 3}, {10}},
  };

  expect_gradients_are_slopes(model);
}

}  // namespace
}  // namespace rondo::train::gradient_test
