#pragma once

#include <memory>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// An experiment with the data and the model that it names; they fit each other.
struct PreparedRun {
  Experiment experiment = {};  ///< with the splits that grid.plan = "auto" chose
  std::shared_ptr<const Dataset> dataset = {};
  Model model = {};
};

/// Reads the data, unless `own` lends it, and makes the model for its images, unless `own_model`
/// lends it. Throws DataError, or ConfigError when the model cannot take such images.
[[nodiscard]] PreparedRun load_run(const Experiment& experiment, const Dataset* own = nullptr,
                                   const Model* own_model = nullptr);

/// Checks `experiment` against this World, reads the data on every rank, and lets rank 0 choose the
/// grid where grid.plan is "auto". Ranks that took part with another configuration or other data
/// would wait for each other in vain, or train on something that nobody has asked for; so they are
/// refused. They may differ in what concerns one rank or its node alone: threads, paths, network
/// interfaces, how to wait. Collective.
///
/// Throws on every rank ConfigError, or DataError, as load_run() and choose_grid_automatically()
/// do; where ranks disagree it names the rank and the key.
[[nodiscard]] PreparedRun prepare_run(transport::World& world, const Experiment& experiment,
                                      const Dataset* own = nullptr,
                                      const Model* own_model = nullptr);

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
