#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

#include <rondo/train/trainer.hpp>

namespace rondo::tools {

/// Epoch, step, loss, accuracy, images/s, communication share, time left; as much of it, from the
/// left, as fits into `width` columns.
[[nodiscard]] std::string format_progress(const train::Progress& progress, std::size_t width);

/// One epoch's result.
[[nodiscard]] std::string format_epoch(const train::EpochMetrics& metrics, std::int64_t epochs);

/// Shows how training goes on: on a terminal a line that is written over in place, elsewhere a
/// line every `every` steps.
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

/// What a run has cost in communication, beside what synchronous updates would have: a line each
/// for reductions, bytes, time and injected delays. Ends without a line break.
[[nodiscard]] std::string format_summary(const train::RunSummary& summary);

}  // namespace rondo::tools
