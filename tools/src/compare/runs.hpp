#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "table.hpp"
#include "train/training.hpp"

namespace rondo::tools {

/// One epoch of a run, of its "epoch" event.
struct EpochRecord {
  double accuracy = 0.0;  ///< percent; NaN when it could not be told
  double seconds = 0.0;   ///< of training, evaluation excluded
  double global_reductions = 0.0;
  double local_reductions = 0.0;
  double bytes_sent = 0.0;
  std::optional<double> global_bytes = {};  ///< absent in runs of older versions; also below
  std::optional<double> local_bytes = {};
};

/// The record that a run left behind in metrics.jsonl. For a run that was resumed, `start` is what
/// its last part says.
struct RunRecord {
  struct Start {
    std::string config = {};  ///< as a TOML file
    std::int64_t ranks = 0;
    std::int64_t threads = 0;
    std::int64_t nodes = 0;
    std::string route = {};  ///< what joins nodes, and which delays were injected
  };
  std::optional<Start> start = {};
  std::vector<EpochRecord> epochs = {};
  /// Steps before the first of these epochs: the run was resumed from a checkpoint in another
  /// folder.
  double steps_elsewhere = 0.0;
  std::string end_reason = {};  ///< empty: the run did not get as far as its end

  /// Does its last line say that it did all that its configuration asks for?
  [[nodiscard]] bool ended_well() const;
  /// Is the rest there, too: its first line, and epochs to compare?
  [[nodiscard]] bool completed() const;
};

/// Calls `visit` with each event of a metrics.jsonl, and `damaged` with the number of each line
/// that is none. A file that is not there has no lines. Throws train::DataError where one that is
/// there cannot be read.
void for_each_event(const std::filesystem::path& metrics,
                    const std::function<void(const nlohmann::json& event)>& visit,
                    const std::function<void(std::size_t line)>& damaged);

/// Reads a metrics.jsonl. Lines that are damaged or unknown are passed over; a file that is not
/// there gives an empty record.
[[nodiscard]] RunRecord read_run_record(const std::filesystem::path& metrics);

/// A number of an event; nothing when it is absent, null, or not a number.
[[nodiscard]] std::optional<double> number_in(const nlohmann::json& event, const char* name);

/// A text of an event; empty when it is absent.
[[nodiscard]] std::string text_in(const nlohmann::json& event, const char* name);

/// Replaces in a "start" event what the "resume" event of a later part of the run says otherwise.
void overlay_resume(nlohmann::json& start, const nlohmann::json& resume);

enum class RunState {
  absent,      ///< nothing is there
  incomplete,  ///< the same run began, but did not complete
  completed,   ///< the same run completed
  different,   ///< a run of another configuration, or with other ranks or threads
};

/// What is in a run folder, seen from the run that is to be there.
struct FoundRun {
  RunState state = RunState::absent;
  std::string difference = {};  ///< of a different one: "update.period is 8, would be 16"
  RunRecord record = {};
};

/// The keys of a configuration that to_toml() has written: "section.key", and the value as text.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> keys_of(const std::string& toml);

/// The first key in which two configurations differ, as "SECTION.KEY is OLD, would be NEW"; empty
/// when they are the same. A key that `recorded` lacks has its default: it is younger than the run.
/// Where `wanted` has grid.plan = "auto", what it chose in the run makes no difference.
[[nodiscard]] std::string first_difference(const std::string& recorded,
                                           const train::Experiment& wanted);

/// Compares what is in `folder` with `training`.
[[nodiscard]] FoundRun find_run(const std::filesystem::path& folder, const Training& training);

/// Removes the files of a run from `folder`, and no others. Throws UsageError, and removes nothing
/// while another run writes there.
void remove_run(const std::filesystem::path& folder);

/// Mean and standard deviation of a sample.
struct MeanAndDeviation {
  double mean = 0.0;
  std::optional<double> deviation = {};  ///< with n - 1; one value has none
};

/// Nothing for no values.
[[nodiscard]] std::optional<MeanAndDeviation> mean_and_deviation(std::span<const double> values);

/// The best accuracy of an epoch, percent. The run has an epoch.
[[nodiscard]] double best_accuracy(const RunRecord& run);

/// Seconds of training until the end of the first epoch whose accuracy is at least `accuracy`
/// percent; nothing when there is none, or when not all epochs of the run are here.
[[nodiscard]] std::optional<double> seconds_to_accuracy(const RunRecord& run, double accuracy);

/// A row of the table: the completed runs of one item. Means are over these runs; totals are absent
/// if a run has epochs in another folder.
struct SchemeSummary {
  std::string label = {};
  std::size_t seeds = 0;  ///< that were asked for
  std::size_t done = 0;
  std::optional<MeanAndDeviation> final_accuracy = {};
  std::optional<MeanAndDeviation> best_accuracy = {};
  std::optional<double> global_reductions = {};
  std::optional<double> local_reductions = {};
  std::optional<double> bytes_sent = {};
  std::optional<double> global_bytes = {};
  std::optional<double> local_bytes = {};
  std::size_t reached = 0;                ///< runs that reached the accuracy
  std::optional<double> time_to_it = {};  ///< seconds, mean of those
  std::optional<double> seconds = {};     ///< of training
};

/// `accuracy`: in percent; nothing: not asked for.
[[nodiscard]] SchemeSummary summarise(std::string label, std::size_t seeds,
                                      std::span<const RunRecord> completed,
                                      std::optional<double> accuracy);

/// The facts that all rows have in common.
struct TableHead {
  std::string conditions = {};          ///< "2 ranks x 1 thread"; empty: not known
  std::optional<double> accuracy = {};  ///< percent, that times are taken to
};

/// A row for each scheme. In text columns that no run has values for are left out, and accuracies
/// stand with their deviations; CSV has every number in a column of its own, and the head.
[[nodiscard]] Table comparison_table(const TableHead& head, const std::vector<SchemeSummary>& rows);

}  // namespace rondo::tools
