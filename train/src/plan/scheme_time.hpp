#pragma once

#include <rondo/train/experiment.hpp>
#include <rondo/train/scaling.hpp>

#include "plan/overlap.hpp"

namespace rondo::train {

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
