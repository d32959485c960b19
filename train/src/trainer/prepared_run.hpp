#pragma once

#include <rondo/train/experiment.hpp>

#include "trainer/material.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// A run that all ranks have agreed on: every rank holds the same.
struct PreparedRun {
  Experiment experiment = {};  ///< with the splits that grid.plan = "auto" chose
  Material material = {};
};

/// Checks `experiment` against this World, reads the data on every rank, and lets rank 0 choose the
/// grid where grid.plan is "auto". Ranks that took part with another configuration or other data
/// would wait for each other in vain, or train on something that nobody has asked for; so they are
/// refused. They may differ in what concerns one rank or its node alone: threads, paths, network
/// interfaces, how to wait. Collective.
///
/// Throws on every rank ConfigError, or DataError, as make_material() and
/// choose_grid_automatically() do; where ranks disagree it names the rank and the key.
[[nodiscard]] PreparedRun prepare_run(transport::World& world, const Experiment& experiment);

}  // namespace rondo::train
