#pragma once

#include <memory>
#include <string>

#include <rondo/train/experiment.hpp>
#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "command.hpp"

namespace rondo::tools {

/// How ranks wait, by the names that users know: auto, spin, yield, block.
extern const Choices<transport::Waiting> waitings;

/// Options for every World of the program: stalls are reported on stderr.
[[nodiscard]] transport::WorldOptions world_options();

/// The same with what [transport] of `experiment` asks for.
[[nodiscard]] transport::WorldOptions world_options(const train::Experiment& experiment);

/// Gives every rank the `text` that rank 0 passes. Collective.
[[nodiscard]] std::string broadcast_text(transport::World& world, const std::string& text);

/// The OpenMP threads that the kernels use, lent to transport and optimizer for their flat
/// passes. Null for one thread, and in builds without OpenMP.
[[nodiscard]] std::unique_ptr<transport::Team> make_openmp_team(int threads);

}  // namespace rondo::tools
