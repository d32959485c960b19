#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>

#include "launch/launcher.hpp"
#include "machine.hpp"
#include "options.hpp"

namespace rondo::tools {

/// A user's request for a training run.
struct TrainRequest {
  LaunchRequest launch = {};  ///< without a flight record's folder: the run's
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};  ///< "section.key=value", after the file
  std::filesystem::path folder = {};       ///< empty: a new one
  std::filesystem::path resume = {};       ///< auto, a run's folder or a checkpoint's; empty: none
  Format format = Format::text;
  std::optional<std::uint64_t> memory_limit = {};  ///< bytes of a rank
  bool sweep = false;     ///< the run ends where the smoothed loss diverges, and evaluates nothing
  bool recorded = false;  ///< the launcher writes flight records after a failure, not the ranks
  bool profile = false;
  std::string profile_steps = {};  ///< "FIRST:LAST"; empty: the default
};

/// Throws UsageError for a configuration on standard input or from a shell's pipe: the launcher
/// reads it, and then every rank.
void refuse_what_is_read_once(const std::filesystem::path& config);

/// Where the results of `request` go: its folder, or that of the run whose checkpoint it names.
/// Throws UsageError when it says "auto" and no folder.
[[nodiscard]] std::filesystem::path folder_asked_for(const TrainRequest& request);

/// `folder`, or if that is empty a folder under runs/ that does not exist yet, named after the time
/// and the experiment.
[[nodiscard]] std::filesystem::path run_folder_for(const std::filesystem::path& folder,
                                                   const train::Experiment& experiment);

/// A training run as it would be started on this machine.
struct Training {
  train::Experiment experiment = {};  ///< with the threads that `placement` gives a rank
  Placement placement = {};
  FabricRequest fabric = {};
};

/// The settings, and what the command line says about links and memory: that is part of the
/// configuration, and so of the run folder.
[[nodiscard]] std::vector<std::string> all_settings(const TrainRequest& request);

/// Throws UsageError "--set KEY: `advice`" where --set is of this key: a command that trains more
/// than once, or for a purpose of its own, sets it itself.
void refuse_setting(const TrainRequest& request, std::string_view key, std::string_view advice);

/// --threads, else [train] threads; 0: as the launcher decides.
[[nodiscard]] int threads_asked_for(const TrainRequest& request,
                                    const train::Experiment& experiment);

/// Divides the cores of `machine` among the ranks. Throws UsageError when there are too few.
[[nodiscard]] Training plan_training(const TrainRequest& request, train::Experiment experiment,
                                     const Machine& machine);

/// The job that trains, with its results in `folder`.
[[nodiscard]] Job training_job(const TrainRequest& request, const Training& training,
                               const std::filesystem::path& folder);

/// Epoch, step, loss, accuracy, images/s, communication share, time left; as much of it, from the
/// left, as fits into `width` columns.
[[nodiscard]] std::string format_progress(const train::Progress& progress, std::size_t width);

/// One epoch's result.
[[nodiscard]] std::string format_epoch(const train::EpochMetrics& metrics, std::int64_t epochs);

/// Shows how training goes on: on a terminal a line that is written over in place, elsewhere a
/// line every `every` steps. A line that cannot be written is lost, as put() says.
class ProgressLine {
 public:
  /// Writes to `stream`, which must stay open.
  ProgressLine(std::FILE* stream, std::int64_t every);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  ///< removes the live line

  void show(const train::Progress& progress);
  /// A line that stays; the live line goes on below it.
  void print(const std::string& line);

 private:
  void clear();

  std::FILE* stream_;
  std::int64_t every_;
  bool terminal_;
  bool live_ = false;
  std::int64_t shown_epoch_ = 0;  // of the last line that was due
  std::int64_t shown_mark_ = 0;   // which of that epoch's it was
  std::chrono::steady_clock::time_point next_ = {};
};

/// The communication costs of a run, beside those that synchronous updates would have: a line each
/// for reductions, bytes, time and injected delays. Ends without a line break.
[[nodiscard]] std::string format_summary(const train::RunSummary& summary);

}  // namespace rondo::tools
