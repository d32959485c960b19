#include "trainer/run_log.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "trainer/token_trace.hpp"

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
  token_trace_ = options.run_folder / "token_trace.jsonl";
  std::filesystem::remove(token_trace_, failure);  // of an earlier run
}

void RunLog::note(const std::string& line) const {
  if (active_ && observer_.on_note) observer_.on_note(line);
}

void RunLog::start(const StartEvent& event, const Experiment& experiment) {
  if (file_) file_->write(event);
  if (active_ && observer_.on_start) observer_.on_start(experiment);
}

void RunLog::step(const StepEvent& event) {
  if (file_) file_->write(event);
}

void RunLog::progress(const Progress& progress) const {
  if (active_ && observer_.on_progress) observer_.on_progress(progress);
}

void RunLog::epoch(const EpochMetrics& metrics) {
  last_epoch_ = metrics;
  best_accuracy_ = std::max(best_accuracy_, metrics.accuracy);
  if (file_) file_->write(metrics);
  if (active_ && observer_.on_epoch) observer_.on_epoch(metrics);
}

void RunLog::window(const sync::LazyWindow& event) {
  if (file_) file_->write(event);
}

void RunLog::round(const RoundEvent& event) {
  if (file_) file_->write(event);
}

void RunLog::pushes(const std::vector<sync::Push>& events) {
  if (!file_) return;
  for (const sync::Push& event : events) file_->write(event);
  append_token_trace(token_trace_, events);
}

void RunLog::end(RunSummary summary, bool by_error) {
  summary.epochs = last_epoch_.epoch;
  summary.final_accuracy = last_epoch_.accuracy;
  summary.best_accuracy = best_accuracy_;
  summary.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  if (file_) file_->write(summary);
  if (active_ && !by_error && observer_.on_end) observer_.on_end(summary);
}

}  // namespace rondo::train
