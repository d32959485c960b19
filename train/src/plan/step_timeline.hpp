#pragma once

#include <cstddef>
#include <vector>

#include "plan/grid_job.hpp"
#include "plan/layout_search.hpp"

namespace rondo::train {

// What is sent when the gradients of `layer` are final: with those of layers behind it.
struct GradientBucket {
  std::size_t layer = 0;
  double bytes = 0.0;
  ProcessGroup ranks = {};
};

// From the output side to the input side, as options.bucket_bytes says.
[[nodiscard]] std::vector<GradientBucket> gradient_buckets(const GridJob& job,
                                                           const FoundLayouts& found);

// Seconds of a step whose layers run as found, where adjacent layers are reduced together as
// update.bucket_bytes says (options.bucket_bytes): what the search counts layer by layer. Weight
// gradients that go over the same ranks share a bucket; it is sent when the last of them are final
// and the bucket before has arrived. Messages of reductions and exchanges wait for each other where
// they leave the node, of which the search knows at most how long they keep the port busy. Passes
// of micro-batches before the last one reduce nothing.
[[nodiscard]] double bucketed_seconds(const GridJob& job, const FoundLayouts& found);

}  // namespace rondo::train
