#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// When a layer's parameters are needed, and their gradients are final, in a step of one rank.
struct FinalGradients {
  double seconds = 0.0;      ///< from the begin of forward
  std::size_t elements = 0;  ///< parameters
  double needed = 0.0;       ///< when forward begins with the layer, in seconds from its own begin
};

/// A step without communication: by parameter block, and the end of backward.
struct Backward {
  std::vector<FinalGradients> blocks = {};
  double end = 0.0;
};

/// Of a rank that trains so many samples of a model that is not split.
[[nodiscard]] Backward backward_of(const Model& model, std::int64_t samples,
                                   const ComputeCosts& costs);

}  // namespace rondo::train
