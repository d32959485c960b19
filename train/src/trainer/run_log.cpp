#include "trainer/run_log.hpp"

#include <algorithm>
#include <system_error>

namespace rondo::train {

RunLog::RunLog(const TrainerOptions& options, int rank)
    : active_(rank == 0), observer_(options.observer) {
  if (!active_ || options.run_folder.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(options.run_folder, failure);
  if (failure) {
    throw ConfigError(options.run_folder.string() +
                      ": the run folder cannot be made: " + failure.message());
  }
  file_.emplace(options.run_folder / "metrics.jsonl");
}

void RunLog::note(const std::string& line) const {
  if (active_ && observer_.on_note) observer_.on_note(line);
}

void RunLog::start(const StartEvent& event) {
  if (file_) file_->write(event);
}

void RunLog::step(const StepEvent& event) {
  if (file_) file_->write(event);
}

void RunLog::progress(const Progress& progress) const {
  if (active_ && observer_.on_progress) observer_.on_progress(progress);
}

void RunLog::epoch(const EpochMetrics& metrics) {
  summary_.epochs = metrics.epoch;
  summary_.final_accuracy = metrics.accuracy;
  summary_.best_accuracy = std::max(summary_.best_accuracy, metrics.accuracy);
  if (file_) file_->write(metrics);
  if (active_ && observer_.on_epoch) observer_.on_epoch(metrics);
}

void RunLog::end(const std::string& reason, std::int64_t steps) {
  summary_.reason = reason;
  summary_.steps = steps;
  summary_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  if (file_) file_->write(summary_);
}

}  // namespace rondo::train
