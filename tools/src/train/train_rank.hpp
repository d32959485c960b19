#pragma once

#include <filesystem>

#include <rondo/train/experiment.hpp>

namespace rondo::tools {

enum class TrainFormat { text, json };

/// What one rank of `rondo train` needs to know.
struct TrainRank {
  train::Experiment experiment = {};
  std::filesystem::path folder = {};         ///< empty: a new one
  std::filesystem::path flight_record = {};  ///< a folder; empty: the run folder
  TrainFormat format = TrainFormat::text;
  int threads = 1;
};

/// Trains as the rank that the launcher started this process for, and returns its exit status.
/// Rank 0 tells how it goes on: text on stdout, or with TrainFormat::json the lines of
/// metrics.jsonl there and text on stderr. When the rank fails in transport, or gets SIGUSR2 and
/// has completed the step, its flight record is written.
[[nodiscard]] int train_as_rank(const TrainRank& rank);

}  // namespace rondo::tools
