#pragma once

#include <cstdint>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/layer_split.hpp>

#include "plan/grid_job.hpp"

namespace rondo::train {

// Fewer channels or filters starve a kernel: one vector of AVX-512, oneDNN's block of channels.
constexpr std::int64_t least_channels = 16;

// What the rank with the most work computes of a layer that is split so; of one that follows, where
// the split is that of what it reads.
[[nodiscard]] LocalWork local_work(const GridJob& job, const JobLayer& layer,
                                   const LayerSplit& split);

// Seconds of the halos of a convolution or pooling layer whose pictures are split: of x before
// forward, of dy before backward-data; of the sums of global average pooling. 0 for other layers.
[[nodiscard]] double halo_seconds(const GridJob& job, const JobLayer& layer,
                                  const LayerSplit& split);

// Has every rank a part of the pictures that it reads and writes, at least as thick as the halo?
[[nodiscard]] bool is_thick_enough(const JobLayer& layer, const LayerSplit& split);

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
