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

/// The step of a rank that trains so many samples of a model that is not split.
[[nodiscard]] Backward backward_of(const Model& model, std::int64_t samples,
                                   const ComputeCosts& costs);

/// How the samples of a rank are shared out among micro-batches: the last one is never the smaller.
struct MicroBatches {
  std::int64_t large = 0;  ///< samples of the last, and of so many
  std::int64_t large_count = 1;
  std::int64_t small = 0;  ///< samples of the others
  std::int64_t small_count = 0;
};

[[nodiscard]] MicroBatches micro_batches_of(std::int64_t samples, std::int64_t count);

/// The step in which the rank's samples go through the model in so many micro-batches, one after
/// another: the first needs parameters, and gradients are final in the last.
[[nodiscard]] Backward backward_of_step(const Model& model, std::int64_t samples,
                                        std::int64_t micro_batches, const ComputeCosts& costs);

}  // namespace rondo::train
