#pragma once

#include <rondo/train/layer_split.hpp>

#include "plan/grid_job.hpp"

namespace rondo::train {

// What plan_best.hpp says of a layer that is split so and reads `x`. Layers that follow have the
// kind of split of what they read.

// Collectives of activations and their gradients, halos.
[[nodiscard]] double exchange_seconds(const GridJob& job, const JobLayer& layer,
                                      const LayerSplit& split);

// The allreduce of weight gradients over all that hold the same weights.
[[nodiscard]] double reduction_seconds(const GridJob& job, const JobLayer& layer,
                                       const LayerSplit& split);

// Words that a rank keeps of gathered inputs and partial outputs.
[[nodiscard]] std::int64_t gathered_words(const GridJob& job, const JobLayer& layer,
                                          const LayerSplit& split);

// Into how many parts the layer's parameters are cut.
[[nodiscard]] int weight_parts(const GridJob& job, const LayerSplit& split);

}  // namespace rondo::train
