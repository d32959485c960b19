// Compares one step with PyTorch 1.13.1 in double precision: the same networks, parameters
// sin(0.7 * element + index of the parameter) scaled per kind, images of make_samples(), summed
// cross-entropy with label smoothing 0.1.

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/support/network.hpp"

namespace rondo::train::pytorch_test {
namespace {

using test::make_samples;
using test::Network;

constexpr std::int64_t samples = 4;
constexpr double tolerance = 2e-4;  // relative; fp32 through 20 layers against double

struct Expected {
  const char* name;
  double norm;
};

constexpr double lenet5_loss = 9.95965403;
constexpr Expected lenet5_gradients[] = {
    {"conv1.weight", 0.06139472}, {"conv1.bias", 0.005488701}, {"conv2.weight", 0.2902493},
    {"conv2.bias", 0.04223895},   {"fc1.weight", 3.539396},    {"fc1.bias", 0.215452},
    {"fc2.weight", 1.676699},     {"fc2.bias", 1.851467},      {"fc3.weight", 2.900235},
    {"fc3.bias", 1.585563},
};

constexpr double resnet20_loss = 10.3860219;
constexpr Expected resnet20_gradients[] = {
    {"conv1.weight", 0.1287234},
    {"bn1.weight", 0.07489215},
    {"bn1.bias", 0.09285863},
    {"layer1.0.conv1.weight", 0.5152206},
    {"layer1.2.bn2.bias", 0.04367218},
    {"layer2.0.downsample.0.weight", 0.3726116},
    {"layer2.0.downsample.1.weight", 0.09147647},
    {"layer2.0.conv1.weight", 0.6754349},
    {"layer3.0.downsample.0.weight", 1.881979},
    {"layer3.2.conv2.weight", 0.8762329},
    {"layer3.2.bn2.weight", 0.6973047},
    {"fc.weight", 16.5858},
    {"fc.bias", 1.73878},
};
constexpr Expected resnet20_statistics[] = {
    {"bn1.running_mean", 0.002418356},
    {"bn1.running_var", 5.59609},
    {"layer2.0.downsample.1.running_mean", 0.5349625},
    {"layer2.0.downsample.1.running_var", 5.614367},
    {"layer3.2.bn2.running_mean", 0.4309513},
    {"layer3.2.bn2.running_var", 12.1125},
};

float formula(const Parameter& parameter, std::size_t index, std::size_t element) {
  const double wave = std::sin(0.7 * static_cast<double>(element) + static_cast<double>(index));
  if (parameter.shape.size() > 1) {
    return static_cast<float>(wave * std::sqrt(2.0 / static_cast<double>(parameter.fan_in)));
  }
  const bool scale = parameter.initial == Initial::ones;
  return static_cast<float>(scale ? 1.0 + 0.2 * wave : 0.1 * wave);
}

void fill(Network& net) {
  for (std::size_t i = 0; i < net.layout.parameters.size(); ++i) {
    const Parameter& parameter = net.layout.parameters[i];
    for (std::size_t j = 0; j < parameter.size(); ++j) {
      net.parameters[parameter.offset + j] = formula(parameter, i, j);
    }
  }
}

Network smoothed(const char* name) {
  return {make_model(name), {.training_batches = {samples}, .label_smoothing = 0.1F}};
}

void expect_norms(std::span<const Expected> expected, const std::vector<Parameter>& entries,
                  std::span<const float> flat) {
  for (const Expected& one : expected) {
    for (const Parameter& entry : entries) {
      if (entry.name != one.name) continue;
      EXPECT_NEAR(test::norm(flat.subspan(entry.offset, entry.size())) / one.norm, 1.0, tolerance)
          << one.name;
    }
  }
}

TEST(PytorchTest, AgreesOnLenet5) {
  Network net = smoothed("lenet5");
  fill(net);

  const tensor::Loss loss = net.train(make_samples(net.model, samples).batch());

  EXPECT_NEAR(loss.sum / lenet5_loss, 1.0, tolerance);
  expect_norms(lenet5_gradients, net.layout.parameters, net.gradients);
}

TEST(PytorchTest, AgreesOnResnet20) {
  Network net = smoothed("resnet20");
  fill(net);

  const tensor::Loss loss = net.train(make_samples(net.model, samples).batch());

  EXPECT_NEAR(loss.sum / resnet20_loss, 1.0, tolerance);
  expect_norms(resnet20_gradients, net.layout.parameters, net.gradients);
  expect_norms(resnet20_statistics, net.layout.statistics, net.statistics);
}

}  // namespace
}  // namespace rondo::train::pytorch_test
