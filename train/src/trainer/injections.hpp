#pragma once

#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

namespace rondo::train {

/// What a run on so many nodes slows down on purpose, in words; every output of the run says so.
[[nodiscard]] std::vector<std::string> injections_of(const Experiment& experiment, int nodes);

/// How many times as long rank `rank` shall take; 1 if it is not slowed down.
[[nodiscard]] double slowness_of(const Experiment& experiment, int rank);

}  // namespace rondo::train
