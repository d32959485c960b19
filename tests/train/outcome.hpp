#pragma once

// Whole runs in one process, and what they leave.

#include <cstddef>
#include <mutex>
#include <vector>

#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "trainer/trainer.hpp"

namespace rondo::train::test {

/// The results of a run on every rank.
struct Outcome {
  ParameterLayout layout = {};                      // of rank 0
  std::vector<std::vector<float>> parameters = {};  // by rank
  std::vector<EpochMetrics> metrics = {};           // by rank, of the last epoch
  std::vector<RunSummary> summaries = {};           // by rank
};

/// Trains `experiment` on so many ranks.
inline Outcome train_on(const rondo::test::World& world, int ranks, const Experiment& experiment) {
  Outcome outcome;
  outcome.parameters.resize(static_cast<std::size_t>(ranks));
  outcome.metrics.resize(static_cast<std::size_t>(ranks));
  outcome.summaries.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  world.run([&](transport::World& mine) {
    RunLog log({}, mine.rank());
    Trainer trainer(mine, prepare_run(mine, experiment), {}, log);
    trainer.join();
    EpochMetrics metrics;
    while (!trainer.done()) metrics = trainer.run_epoch();
    trainer.finish();

    const std::lock_guard lock(mutex);
    const auto rank = static_cast<std::size_t>(mine.rank());
    if (rank == 0) outcome.layout = trainer.layout();
    outcome.metrics[rank] = metrics;
    outcome.summaries[rank] = trainer.summary("");
    outcome.parameters[rank].assign(trainer.parameters().begin(), trainer.parameters().end());
  });
  return outcome;
}

inline Outcome train_on(int ranks, const Experiment& experiment) {
  return train_on(rondo::test::World{ranks}, ranks, experiment);
}

}  // namespace rondo::train::test
