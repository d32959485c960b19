#pragma once

// The work of the ranks of a grid in a step of a model, for simulate_grid_steps(): computing times
// as the planner has them, and every exchange that the kernels of the trainer make, with the bytes
// that follow from the trainer's own layouts.

#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/partition.hpp>

#include "plan/grid_job.hpp"
#include "plan/layout_search.hpp"
#include "support/simulated_grid_step.hpp"

namespace rondo::test {

/// The planner's layouts where each layer is split as `split` says, if the planner knows the layer
/// so; else as the planner likes. Throws std::invalid_argument if there are none.
[[nodiscard]] train::FoundLayouts layouts_with(const train::GridJob& job,
                                               const train::LayerSplit& split,
                                               const train::ComputeCosts& costs);

/// Activations are fp32, statistics of batch norm those of a rank. All replicas have as many
/// samples. Throws std::logic_error where the phases do not send as many bytes as the trainer's
/// table of them says.
[[nodiscard]] std::vector<SimulatedPhase> phases_of(const train::GridJob& job,
                                                    const train::FoundLayouts& found);

}  // namespace rondo::test
