#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "launch/launcher.hpp"
#include "machine.hpp"
#include "options.hpp"

namespace rondo::tools {

/// What a user asks of a training run.
struct TrainRequest {
  LaunchRequest launch = {};  ///< without a flight record's folder: the run's
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};  ///< "section.key=value", after the file
  std::filesystem::path folder = {};       ///< empty: a new one
  Format format = Format::text;
  std::optional<std::uint64_t> memory_limit = {};  ///< bytes of a rank
  bool profile = false;
  std::string profile_steps = {};  ///< "FIRST:LAST"; empty: the default
};

/// `folder`, or if that is empty a folder under runs/ that does not exist yet, named after the time
/// and the experiment.
[[nodiscard]] std::filesystem::path run_folder_for(const std::filesystem::path& folder,
                                                   const train::Experiment& experiment);

/// The folder of one run, from before it begins until it has ended. A run has begun when its
/// metrics.jsonl says so; one that was refused before leaves nothing behind, so that it can be
/// tried again with the same folder.
class RunFolder {
 public:
  /// Makes `folder`, unless it exists, and writes the resolved configuration into its config.toml.
  /// Throws UsageError when that cannot be done, or when another run's files are in it. Doing it
  /// twice for the same run, as the launcher and rank 0 do, is no error.
  RunFolder(std::filesystem::path folder, const train::Experiment& experiment);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  /// Unless the run has begun, removes what was made here, and its metrics.jsonl.
  ~RunFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void make(const std::string& config);
  void remove() noexcept;

  std::filesystem::path path_;
  std::filesystem::path made_;  // the topmost folder that was not there; empty when all were
  bool wrote_config_ = false;
};

/// Writes config.toml of a run anew: `experiment` says what was left open, as by grid.plan =
/// "auto". Throws UsageError when it cannot be written.
void rewrite_config(const std::filesystem::path& folder, const train::Experiment& experiment);

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
