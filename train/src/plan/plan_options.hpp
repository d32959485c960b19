#pragma once

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train {

/// Which sets have a source of images, which are decoded when they are needed?
struct DecodedSets {
  bool training = false;
  bool test = false;
};
[[nodiscard]] DecodedSets decoded_sets(const Dataset& dataset);

/// How many micro-batches the loader of a run keeps, for PlanOptions::buffered_batches.
[[nodiscard]] int buffered_batches(const Experiment& experiment, DecodedSets decoded);

}  // namespace rondo::train
