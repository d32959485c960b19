#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/trainer.hpp>

#include "trainer/metrics_file.hpp"
#include "trainer/run_events.hpp"

namespace rondo::train {

/// Where a run tells what happens: the observer and metrics.jsonl on rank 0, nowhere on others.
class RunLog {
 public:
  /// Makes the run folder where it is missing. Throws ConfigError when that cannot be written.
  RunLog(const TrainerOptions& options, int rank);

  [[nodiscard]] bool active() const noexcept { return active_; }

  void note(const std::string& line) const;
  void start(const StartEvent& event, const Experiment& experiment);
  void step(const StepEvent& event);
  void progress(const Progress& progress) const;
  void epoch(const EpochMetrics& metrics);
  void window(const sync::LazyWindow& event);
  void round(const RoundEvent& event);
  /// Turns of a cyclic run: to metrics.jsonl, and to token_trace.jsonl beside it.
  void pushes(const std::vector<sync::Push>& events);
  /// The run ended as `summary` says; what the epochs told, and the time, is added to it. The
  /// observer is told unless it ended by an error.
  void end(RunSummary summary, bool by_error);

 private:
  bool active_;
  TrainerObserver observer_;
  std::optional<MetricsFile> file_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::filesystem::path token_trace_;
  EpochMetrics last_epoch_;
  double best_accuracy_ = 0.0;
};

}  // namespace rondo::train
