#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "launch/fabric_request.hpp"
#include "launch/launcher.hpp"
#include "launch/placement.hpp"
#include "machine/machine.hpp"
#include "train/run_folder.hpp"

namespace rondo::tools {

/// What a user asks of a training run.
struct TrainRequest {
  PlacementRequest request = {};
  FabricRequest fabric = {};
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};          ///< "section.key=value", after the file
  std::filesystem::path folder = {};               ///< empty: a new one
  std::filesystem::path flight_record = {};        ///< a folder; empty: the run folder
  std::string format = "text";                     ///< text, json
  std::optional<std::uint64_t> memory_limit = {};  ///< bytes of a rank
};

/// A training run as it would be started on this machine.
struct Training {
  train::Experiment experiment = {};  ///< with the threads that `placement` gives a rank
  Placement placement = {};
  FabricRequest fabric = {};
};

/// The settings, and what the command line says about links and memory: that is part of the
/// configuration, and so of the run folder.
[[nodiscard]] std::vector<std::string> all_settings(const TrainRequest& request);

/// --threads, else [train] threads; 0: as the launcher decides.
[[nodiscard]] int threads_asked_for(const TrainRequest& request,
                                    const train::Experiment& experiment);

/// Divides the cores of `machine` among the ranks. Throws UsageError when there are too few.
[[nodiscard]] Training plan_training(const TrainRequest& request, train::Experiment experiment,
                                     const Machine& machine);

/// The job that trains, with its results in `folder`.
[[nodiscard]] Job training_job(const TrainRequest& request, const Training& training,
                               const RunFolder& folder);

}  // namespace rondo::tools
