#pragma once

#include <rondo/train/layer_split.hpp>

#include "plan/grid_job.hpp"

namespace rondo::train {

// Seconds of the halos of a convolution or pooling layer whose pictures are split: of x before
// forward, of dy before backward-data; of the sums of global average pooling. 0 for other layers.
[[nodiscard]] double halo_seconds(const GridJob& job, const JobLayer& layer,
                                  const LayerSplit& split);

// Has every rank a part of the pictures that it reads and writes, at least as thick as the halo?
[[nodiscard]] bool is_thick_enough(const JobLayer& layer, const LayerSplit& split);

}  // namespace rondo::train
