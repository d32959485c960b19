#pragma once

#include <rondo/train/compute_costs.hpp>

#include "plan/grid_job.hpp"

namespace rondo::train {

// What the rank with the most work computes of a layer that is split so; of one that follows, where
// the split is that of what it reads.
[[nodiscard]] LocalWork local_work(const GridJob& job, const JobLayer& layer,
                                   const LayerSplit& split);

}  // namespace rondo::train
