// The contents of a file of weights, tensor by tensor. The file may be anybody's: types that are no
// floats have no statistics, and values that are not finite are counted apart.

#include <rondo/train/weights.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "weights/safetensors.hpp"

namespace rondo::train {
namespace {

std::size_t bin_of(double value, const TensorStatistics& statistics) {
  const std::size_t bins = statistics.histogram.size();
  const double width = statistics.max - statistics.min;
  if (!(width > 0.0)) return 0;
  const double part = (value - statistics.min) / width;
  return std::min(static_cast<std::size_t>(part * static_cast<double>(bins)), bins - 1);
}

TensorStatistics statistics_of(std::span<const float> values) {
  TensorStatistics result;
  double sum = 0.0;
  double squares = 0.0;
  std::uint64_t finite = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const auto number = static_cast<double>(value);
    result.min = finite == 0 ? number : std::min(result.min, number);
    result.max = finite == 0 ? number : std::max(result.max, number);
    sum += number;
    squares += number * number;
    ++finite;
  }
  result.not_finite = values.size() - finite;
  if (finite == 0) {
    // 0 would look like a tensor of zeros.
    result.norm = result.mean = result.min = result.max = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  result.norm = std::sqrt(squares);
  result.mean = sum / static_cast<double>(finite);
  for (const float value : values) {
    if (std::isfinite(value)) ++result.histogram[bin_of(static_cast<double>(value), result)];
  }
  return result;
}

}  // namespace

WeightsSummary summarize_weights(const std::filesystem::path& file) {
  const SafetensorsFile source(file);
  WeightsSummary summary{.metadata = source.metadata()};
  std::vector<float> values;
  source.read_all([&](const SafetensorsFile::Entry& entry) {
    TensorSummary tensor{.name = entry.name,
                         .type = entry.type,
                         .shape = entry.shape,
                         .elements = entry.elements(),
                         .bytes = entry.bytes.size()};
    if (entry.has_floats()) {
      values.resize(entry.elements());
      source.read(entry, values);
      tensor.statistics = statistics_of(values);
    }
    summary.tensors.push_back(std::move(tensor));
  });
  return summary;
}

}  // namespace rondo::train
