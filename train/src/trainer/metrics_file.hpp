#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "trainer/run_events.hpp"

namespace rondo::train {

/// metrics.jsonl: one JSON object a line, each written through at once, so that a reader can
/// follow a run and a killed run leaves whole lines.
class MetricsFile {
 public:
  /// Begins the file anew; its folder exists. Throws ConfigError when it cannot be written.
  explicit MetricsFile(std::filesystem::path file);

  // Each throws DataError when the line could not be written, for example because the disk is
  // full.
  void write(const StartEvent& event);
  void write(const StepEvent& event);
  void write(const EpochMetrics& event);
  void write(const sync::LazyWindow& event);
  void write(const RoundEvent& event);
  void write(const sync::Push& event);
  void write(const RunSummary& event);

 private:
  void write_line(const std::string& line);

  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace rondo::train
