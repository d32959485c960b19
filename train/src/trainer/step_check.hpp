#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include <rondo/train/executor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

#include "trainer/meters.hpp"
#include "trainer/trained_state.hpp"

namespace rondo::train {

/// The facts that all ranks must notice alike in a step: that a loss or a gradient is NaN or Inf,
/// which ends the run, and what was requested of the run from outside.
class StepCheck {
 public:
  /// Lent: the state that a step is computed with, and the meter that leaves out what an exchange
  /// moves. Collective.
  StepCheck(TrainedState& state, TrafficMeter& traffic);

  // The finds of this rank. Steps are counted from 0 over the whole run; the first find counts.

  /// The loss of `batch`, which was computed last, is not finite: runs forward again to find where
  /// that began.
  void locate_not_finite(const Batch& batch, std::int64_t step);
  /// The gradient of this layer is not finite.
  void note_not_finite_gradient(const std::string& layer, std::int64_t step);
  /// What is not finite, in words; empty: nothing.
  [[nodiscard]] const std::string& not_finite() const noexcept { return not_finite_; }

  // The agreement of the ranks. Where one of them has found something, all throw NumericError.

  /// Before the update of step `step`: exchanges what is requested of this rank, and whether its
  /// loss and gradients are `finite`. Collective.
  void exchange_flags(bool finite, std::int64_t step);

  // The same in three parts, where replicas step alone and do not wait for each other in a step.

  /// Before the update of step `step`: notes it, and takes what begin_exchange() has begun.
  /// Collective.
  void note_flags(bool finite, std::int64_t step);
  /// After the update: begins to exchange what was noted, if the ranks `met` in it, alike on all,
  /// or some time has passed. Collective.
  void begin_exchange(bool met);
  /// Between two steps, of which `next` is the second, where ranks meet anyway: exchanges what was
  /// noted and is not known yet. Collective.
  void settle_flags(std::int64_t next);

  // What was requested: the greatest of all ranks.

  /// In the last step, unless it has been taken.
  [[nodiscard]] RunRequest requested() const noexcept {
    return static_cast<RunRequest>(requested_);
  }
  [[nodiscard]] RunRequest take_request() noexcept;
  /// Keeps it for the end of the epoch, because the scheme cannot be saved before.
  void postpone_request() noexcept;
  /// At the end of the epoch, together with what has been requested since its last step.
  /// Collective.
  [[nodiscard]] RunRequest take_request_of_epoch();
  /// A checkpoint was taken as requested. It answers what this rank alone has been asked for
  /// meanwhile, too: a signal to all ranks does not come to all in the same step. An end stays
  /// requested.
  void take_answered();

 private:
  /// The flags that ranks tell each other of their steps; the largest of each counts.
  struct Flags {
    int request = 0;     ///< see RunRequest
    int not_finite = 0;  ///< 1: the loss of some rank is NaN or Inf
    int steps = 0;       ///< after so many the next exchange is wanted; 0: in every step
  };

  [[nodiscard]] static Flags both(const Flags& a, const Flags& b) noexcept;
  void note(const Flags& mine) noexcept { noted_ = both(noted_, mine); }
  void begin();
  Flags settle();
  Flags exchange(const Flags& mine);
  [[nodiscard]] int own_request();
  void find_on_grid(std::int64_t step);
  void take(const Flags& all, std::int64_t number);
  [[nodiscard]] int count_steps();
  [[noreturn]] void throw_not_finite(std::int64_t number);

  TrainedState& state_;
  TrafficMeter& traffic_;
  transport::Communicator all_;
  Flags noted_;                    // for the next exchange
  std::array<int, 3> flags_ = {};  // of the exchange under way
  transport::Request request_;
  std::uint64_t bytes_ = 0;  // that an exchange moves
  int steps_ = 0;            // since the last one
  int next_after_ = 1;       // so many steps, if ranks do not meet before
  std::chrono::steady_clock::time_point last_exchange_ = std::chrono::steady_clock::now();
  int requested_ = 0;
  int postponed_ = 0;
  int own_left_ = 0;  // requested of this rank, and not exchanged yet
  std::string not_finite_;
  std::int64_t found_in_ = std::numeric_limits<std::int64_t>::max();  // step of not_finite_
};

}  // namespace rondo::train
