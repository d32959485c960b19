// The list of data sets, and what all of them share.

#include <rondo/train/dataset.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

// The one list of data sets.
constexpr std::array types = {&fashion_mnist, &cifar10, &synthetic};

struct Sums {
  std::uint64_t values = 0;
  std::uint64_t squares = 0;
};

Sums sum_channel(const std::vector<std::uint8_t>& pixels, std::size_t channel,
                 std::size_t channels) {
  Sums sums;
  for (std::size_t i = channel; i < pixels.size(); i += channels) {
    const std::uint64_t value = pixels[i];
    sums.values += value;
    sums.squares += value * value;
  }
  return sums;
}

const DatasetType& dataset_type(std::string_view name) {
  for (const DatasetType* type : types) {
    if (type->name == name) return *type;
  }
  throw ConfigError("data.name: no data set '" + std::string(name) + "'");
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetType* type : types) names.emplace_back(type->name);
  return names;
}

DatasetShape dataset_shape(const Experiment::Data& data) {
  return dataset_type(data.name).shape(data);
}

Dataset load_dataset(const Experiment::Data& data, const tensor::Shape& model_input,
                     std::int64_t model_classes) {
  const DatasetType& type = dataset_type(data.name);
  DatasetShape shape = type.shape(data);
  if (shape.image == tensor::Shape{}) shape.image = model_input;
  if (shape.classes == 0) shape.classes = model_classes;
  return type.load(data, shape);
}

void measure_normalisation(Dataset& dataset) {
  const auto channels = static_cast<std::size_t>(dataset.training.shape.c);
  const std::vector<std::uint8_t>& pixels = dataset.training.pixels;
  dataset.mean.assign(channels, 0.0F);
  dataset.stddev.assign(channels, 1.0F);
  const double count = std::max(1.0, static_cast<double>(pixels.size() / channels));
  for (std::size_t c = 0; c < channels; ++c) {
    const Sums sums = sum_channel(pixels, c, channels);
    const double mean = static_cast<double>(sums.values) / count;
    const double variance = static_cast<double>(sums.squares) / count - mean * mean;
    dataset.mean[c] = static_cast<float>(mean / 255.0);
    if (variance > 1e-6) dataset.stddev[c] = static_cast<float>(std::sqrt(variance) / 255.0);
  }
}

}  // namespace rondo::train
