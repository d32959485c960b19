#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/trainer.hpp>

#include "trainer/meters.hpp"

namespace rondo::train {

/// The work that the ranks did together, counters and time.
struct Work {
  double seconds = 0.0;  ///< these three are means over the ranks
  double communicating = 0.0;
  double waiting = 0.0;
  sync::SchemeCounters counters = {};  ///< reductions are means over the ranks, bytes are sums
  std::uint64_t bytes_sent = 0;        ///< sum over the ranks

  Work& operator+=(const Work& other) noexcept {
    seconds += other.seconds;
    communicating += other.communicating;
    waiting += other.waiting;
    counters = counters + other.counters;
    bytes_sent += other.bytes_sent;
    return *this;
  }
};

/// The traffic that synchronous updates would have had in the same steps: the table at the end of a
/// run compares.
struct SynchronousWork {
  std::uint64_t reductions = 0;
  std::uint64_t bytes = 0;       ///< that are reduced
  std::uint64_t bytes_sent = 0;  ///< sum over the ranks

  friend SynchronousWork operator+(const SynchronousWork& a, const SynchronousWork& b) noexcept {
    return {.reductions = a.reductions + b.reductions,
            .bytes = a.bytes + b.bytes,
            .bytes_sent = a.bytes_sent + b.bytes_sent};
  }
};

/// Calls visit(name, number) for each number of an epoch's figures, as its event names them, in the
/// order of the event and of a checkpoint.
template <typename Metrics, typename Visit>
void visit_figures(Metrics& metrics, const Visit& visit) {
  visit("epoch", metrics.epoch);
  visit("loss", metrics.loss);
  visit("accuracy", metrics.accuracy);
  visit("training_accuracy", metrics.training_accuracy);
  visit("test_loss", metrics.test_loss);
  visit("images_per_second", metrics.images_per_second);
  visit("seconds", metrics.seconds);
  visit("evaluation_seconds", metrics.evaluation_seconds);
  visit("communication_share", metrics.communication_share);
  visit("wait_share", metrics.wait_share);
  visit("global_reductions", metrics.global_reductions);
  visit("local_reductions", metrics.local_reductions);
  visit("global_bytes", metrics.global_bytes);
  visit("local_bytes", metrics.local_bytes);
  visit("evaluation_reductions", metrics.evaluation_reductions);
  visit("bytes_sent", metrics.bytes_sent);
}

/// How far a run has come on one rank, with the figures of the epoch under way: a part of a
/// checkpoint. The figures are in it so that the lines of a resumed run are those of one that was
/// never stopped.
struct RunState {
  // These are the same on all ranks.
  std::int64_t step = 0;          ///< over the whole run, in global batches
  std::int64_t epoch = 0;         ///< 1-based
  std::int64_t epoch_first = 0;   ///< the epoch's first step
  std::int64_t momenta_from = 0;  ///< the step before which they were zeros
  bool epoch_open = false;        ///< has the epoch begun, and not been evaluated?
  double best_accuracy = -1.0;    ///< percent; -1: nothing was evaluated
  EpochMetrics last_epoch = {};
  double seconds = 0.0;  ///< of everything, as the log counts
  Work work = {};        ///< of the epochs before
  SynchronousWork synchronous = {};
  double trained_samples = 0.0;  ///< of all ranks, in the epochs before
  // These are of this rank.
  std::int64_t minibatch = 0;          ///< of its own pace
  sync::SchemeCounters in_epoch = {};  ///< what its scheme has done in the epoch
  LossMeter::State losses = {};        ///< of the epoch
  Traffic traffic = {};                ///< of the epoch
};

[[nodiscard]] std::vector<std::byte> to_bytes(const RunState& state);

/// Reads what to_bytes() wrote. Throws std::invalid_argument.
[[nodiscard]] RunState read_run_state(std::span<const std::byte> bytes);

/// The state that other ranks go on from: the figures of the epoch are those of all `ranks`
/// together, sums and means as in Work. There is at least one.
[[nodiscard]] RunState together(std::span<const RunState> ranks);

/// The state that all but the first of these other ranks go on from: sums are counted once.
[[nodiscard]] RunState without_sums(RunState state);

}  // namespace rondo::train
