#pragma once

#include <cstdint>
#include <span>

namespace rondo::train {

/// Some images and their labels, ready for the first layer: NHWC, normalised, augmented.
/// Not owning. A batch may be empty: a rank without a sample still takes part in every step.
struct Batch {
  std::int64_t samples = 0;
  std::span<const float> images = {};         ///< samples * height * width * channels
  std::span<const std::int32_t> labels = {};  ///< samples
};

}  // namespace rondo::train
