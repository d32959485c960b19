#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include <rondo/train/executor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "trainer/agreement.hpp"
#include "trainer/batch_iterator.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/meters.hpp"

namespace rondo::train {

/// The facts that all ranks must notice alike in a step: that a loss or a gradient is NaN or Inf,
/// which ends the run, and what was requested of the run from outside.
class StepCheck {
 public:
  /// The parts that a step is computed with. All members are lent.
  struct Parts {
    const GridMembership& grid;
    Executor& executor;
    BatchIterator& batches;
    TrafficMeter& traffic;                       ///< leaves out what an exchange moves
    const std::function<RunRequest()>& request;  ///< see TrainerOptions
  };

  /// Collective.
  StepCheck(transport::World& world, const Parts& parts);

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
  [[nodiscard]] int own_request();
  void find_on_grid(std::int64_t step);
  void take(const StepFlags& all, std::int64_t number);
  [[nodiscard]] int count_steps();
  [[noreturn]] void throw_not_finite(std::int64_t number);

  transport::World& world_;
  Parts parts_;
  StepAgreement flags_;
  int noted_ = 0;       // steps since the last exchange
  int next_after_ = 1;  // so many steps, if ranks do not meet before
  std::chrono::steady_clock::time_point last_exchange_ = std::chrono::steady_clock::now();
  int requested_ = 0;
  int postponed_ = 0;
  int own_left_ = 0;  // requested of this rank, and not exchanged yet
  std::string not_finite_;
  std::int64_t found_in_ = std::numeric_limits<std::int64_t>::max();  // step of not_finite_
};

}  // namespace rondo::train
