#pragma once

#include <chrono>
#include <optional>
#include <string>

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
  void start(const StartEvent& event);
  void step(const StepEvent& event);
  void progress(const Progress& progress) const;
  void epoch(const EpochMetrics& metrics);
  /// The run ended after `steps` steps, for `reason`.
  void end(const std::string& reason, std::int64_t steps);

 private:
  bool active_;
  TrainerObserver observer_;
  std::optional<MetricsFile> file_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  EndEvent summary_;
};

}  // namespace rondo::train
