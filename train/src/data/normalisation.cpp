#include "data/normalisation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo::train {
namespace {

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

}  // namespace

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
