#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// The loss or the parameters became NaN or Inf; what() names the step.
class RONDO_TRAIN_API NumericError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Told to a progress line while training runs; figures are of the current epoch.
struct Progress {
  std::int64_t epoch = 0;  ///< 1-based
  std::int64_t epochs = 0;
  std::int64_t step = 0;  ///< 1-based, within the epoch
  std::int64_t steps = 0;
  double loss = 0.0;
  double accuracy = 0.0;  ///< percent, of the training batches so far
  double images_per_second = 0.0;
  double communication_share = 0.0;
  double seconds_left = 0.0;
};

/// One epoch's line of metrics.jsonl; the README of this module says what each name means.
struct EpochMetrics {
  std::int64_t epoch = 0;
  double loss = 0.0;
  double accuracy = 0.0;
  double images_per_second = 0.0;
  double seconds = 0.0;
  double communication_share = 0.0;
  double wait_share = 0.0;
  std::uint64_t global_reductions = 0;
  std::uint64_t local_reductions = 0;
  std::uint64_t bytes_sent = 0;
  std::string parameter_hash = {};
};

/// What the trainer tells while it runs, on rank 0 only. Called on the training thread.
struct TrainerObserver {
  std::function<void(const std::string& line)> on_note = {};  ///< facts worth printing once
  std::function<void(const Progress&)> on_progress = {};
  std::function<void(const EpochMetrics&)> on_epoch = {};
};

struct TrainerOptions {
  int threads = 1;                        ///< of this rank, decided by the launcher
  std::filesystem::path run_folder = {};  ///< rank 0 writes metrics.jsonl there; empty: nowhere
  TrainerObserver observer = {};
};

/// Trains `experiment` on all ranks of `world`; returns the last epoch's metrics (the same on
/// every rank). Collective.
///
/// Throws ConfigError, DataError, NumericError, or transport::Error.
RONDO_TRAIN_API EpochMetrics train(transport::World& world, const Experiment& experiment,
                                   const TrainerOptions& options);

}  // namespace rondo::train
