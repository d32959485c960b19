#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/scaling.hpp>

namespace rondo::train {

// When the gradients of a layer's parameters are final in a step of one rank.
struct FinalGradients {
  double seconds = 0.0;      // from the begin of forward
  std::size_t elements = 0;  // parameters
};

// A step without communication: by parameter block, and the end of backward.
struct Backward {
  std::vector<FinalGradients> blocks = {};
  double end = 0.0;
};

[[nodiscard]] Backward backward_of(const Model& model, std::int64_t samples,
                                   const ComputeCosts& costs);

// Seconds of an allreduce of so many elements.
using Allreduce = std::function<double(double elements)>;

// When the reductions of all blocks from `first` on have ended; they begin with the last block. 0
// if there are none.
[[nodiscard]] double reductions_end(const Backward& backward, std::size_t first,
                                    std::size_t bucket_elements, const Allreduce& allreduce);

// What a step's time depends on.
struct SchemeJob {
  const Model& model;
  const Experiment::Update& update;
  const ScalingOptions& options;
  const Backward& backward;
  int ranks = 1;
  double update_seconds = 0.0;  // U
};

// The seconds of scaling.hpp for the scheme that update.scheme names, in which a rank trains its
// samples once. Throws std::invalid_argument for a name that is none.
[[nodiscard]] double step_seconds(const SchemeJob& job);

}  // namespace rondo::train
