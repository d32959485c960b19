#pragma once

#include <vector>

#include "plan/grid_job.hpp"
#include "plan/layout_search.hpp"

namespace rondo::train {

// Seconds of a step whose layers run as found, where adjacent layers are reduced together as
// update.bucket_bytes says (options.bucket_bytes): what the search counts layer by layer. Weight
// gradients that go over the same ranks share a bucket; it is sent when the last of them are final
// and the bucket before has arrived.
[[nodiscard]] double bucketed_seconds(const GridJob& job, const FoundLayouts& found);

}  // namespace rondo::train
