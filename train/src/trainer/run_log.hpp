#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/train/run_directory.hpp>
#include <rondo/train/trainer.hpp>

#include "trainer/damaged_log.hpp"
#include "weights/durable_file.hpp"

namespace rondo::train {

/// How a run began; see the README of this module for the meaning of every name.
struct StartEvent {
  std::string config = {};  ///< as a TOML file
  int ranks = 1;
  int threads = 1;
  std::vector<std::string> hosts = {};  ///< by rank
  int nodes = 1;
  std::string route = {};  ///< what joins nodes, and which delays were injected
  std::int64_t global_batch = 0;
  std::vector<std::int64_t> rank_batches = {};  ///< by rank, of a full global batch
  std::string data = {};
  std::int64_t training_images = 0;
  std::int64_t test_images = 0;
  std::string model = {};
  std::int64_t parameters = 0;
  std::int64_t seed = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::string scheme = {};
  std::vector<std::string> lazy_layers = {};  ///< lazy only: their names
  std::vector<std::string> injected = {};     ///< what is slowed down on purpose, in words
};

/// Training since the previous step event of the epoch, over all ranks.
struct StepEvent {
  std::int64_t epoch = 0;  ///< 1-based
  std::int64_t step = 0;   ///< 1-based, within the epoch
  std::int64_t total_step = 0;
  double loss = 0.0;
  double training_accuracy = 0.0;
  double learning_rate = 0.0;
  double images_per_second = 0.0;  ///< of the epoch so far
};

/// A run goes on from a checkpoint.
struct ResumeEvent {
  StartEvent part = {};  ///< the part of the run that begins here
  std::int64_t epoch = 0;
  std::int64_t total_step = 0;
  std::string checkpoint = {};
};

/// metrics.jsonl: one JSON object a line, each written through at once, so that a reader can
/// follow a run and a killed run leaves whole lines.
class MetricsFile {
 public:
  /// The file's folder exists. Throws DataError when it cannot be written.
  explicit MetricsFile(std::filesystem::path file);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Its length. Throws DataError where another file has its name now, or none.
  [[nodiscard]] std::uint64_t bytes() const;
  /// Leaves only the first so many bytes.
  void cut(std::uint64_t length) const;
  /// Puts `text` in the place of all that the file has, or leaves it as it is. Throws DataError.
  void replace(std::string_view text);

  // Each throws DataError when the line could not be written, for example because the disk is
  // full, or because another file has its name.
  void write(const StartEvent& event);
  void write(const StepEvent& event);
  void write(const EpochMetrics& event);
  void write(const sync::LazyWindow& event);
  void write(const sync::Round& event);
  void write(const ResumeEvent& event);
  void write(const sync::Push& event);
  void write(const RunSummary& event);

 private:
  void open();
  void write_line(const std::string& line);
  void expect_in_place() const;

  std::filesystem::path path_;
  std::ofstream stream_;
  std::optional<FileIdentity> identity_;  // of the file that was opened
};

/// Where a run tells what happens: the observer and metrics.jsonl on rank 0, nowhere on others.
class RunLog {
 public:
  /// Makes the run folder where it is missing. Throws ConfigError when it cannot be made or is
  /// another run's, DataError when it cannot be written.
  RunLog(const TrainerOptions& options, int rank);

  [[nodiscard]] bool active() const noexcept { return active_; }

  void note(const std::string& line) const;
  /// The run begins, or goes on: the observer is told.
  void start(const Experiment& experiment) const;
  /// An event that goes to the file alone.
  template <typename Event>
  void write(const Event& event) {
    if (file_) file_->write(event);
  }
  void progress(const Progress& progress) const;
  void epoch(const EpochMetrics& metrics);
  /// The run goes on in its folder, whose metrics.jsonl was as `part` says; what was written later
  /// is cut off. A note where it is not as it was: lines that cannot be read are then in
  /// metrics.jsonl.damaged, and the others stay.
  void continue_metrics(const LogPart& part);
  /// The run goes on; the token trace had so many bytes.
  void resume(std::uint64_t trace_bytes);
  /// The run goes on in its folder, whose token trace had so many bytes. A note where it has fewer:
  /// a replay of it is refused then.
  void expect_token_trace(std::uint64_t bytes) const;
  /// The run goes on in another folder than before: its token trace begins with so many bytes of
  /// `from`. A note where they cannot be had: the run does not need them, only a replay of it does.
  void copy_token_trace(const std::filesystem::path& from, std::uint64_t bytes) const;
  /// The run goes on from nothing: what an earlier run has left in its files is removed.
  void begin_anew();
  /// Since this log was made.
  [[nodiscard]] double seconds() const;
  /// Whose lengths follow; none where this rank has no files.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;
  [[nodiscard]] std::uint64_t metrics_bytes() const;
  /// The checksum of so many of them; empty where this rank has no files.
  [[nodiscard]] std::string metrics_checksum(std::uint64_t bytes) const;
  /// Does metrics.jsonl say what was run? Not where it was lost, or damaged there.
  [[nodiscard]] bool has_start() const;
  [[nodiscard]] std::uint64_t trace_bytes() const;
  /// Turns of a cyclic run: to metrics.jsonl, and to token_trace.jsonl beside it.
  void pushes(const std::vector<sync::Push>& events);
  /// The run ended as `summary` says. The observer is told unless it ended by an error.
  void end(const RunSummary& summary, bool by_error);

 private:
  void set_damaged_aside(const std::string& lines) const;
  void break_token_trace(const std::string& why) const;

  bool active_;
  TrainerObserver observer_;
  std::optional<DirectoryLock> lock_;
  std::optional<MetricsFile> file_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::filesystem::path token_trace_;
  bool undecided_ = true;  // what becomes of the files that an earlier run has left?
};

}  // namespace rondo::train
