#pragma once

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// [grid] with the splits that the planner expects to be fastest for `model` on this World's ranks,
/// and within train.memory_limit; its plan is "chosen". Nothing is measured, so that a run begins
/// at once: a fixed flop rate for each of train.threads, and messages of 2 us and 6 GB/s between
/// nodes or as injected, of 1 us and 10 GB/s within one; where nodes are of different sizes, all
/// messages go between nodes. `rondo plan --strategy best` measures, and prints what to write
/// instead.
///
/// Throws ConfigError where no grid is possible, with the planner's reason.
[[nodiscard]] Experiment::Grid choose_grid_automatically(const Model& model,
                                                         const Experiment& experiment,
                                                         const transport::World& world);

}  // namespace rondo::train
