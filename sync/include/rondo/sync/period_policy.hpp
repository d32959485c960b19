#pragma once

#include <cstdint>
#include <functional>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

/// What is known when a round of averaging begins, on all ranks alike.
struct RoundStart {
  std::int64_t index = 0;      ///< of the round: 0, 1, 2, ...
  std::int64_t step = 0;       ///< Step::index of its first step
  std::int64_t period = 0;     ///< that of the options
  double learning_rate = 0.0;  ///< of its first step
  /// Mean loss of a sample in the round before, over all ranks; and in the first round. 0 while
  /// there is none: in the first round, without `sums_losses`, and where add_loss() is not called.
  double loss = 0.0;
  double first_loss = 0.0;
};

/// How many local steps the round that begins has until its global average: at least 1. All ranks
/// must give the same number, so it may depend on nothing but its argument. Called in begin().
using PeriodPolicy = std::function<std::int64_t(const RoundStart&)>;

/// Post-local SGD (Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", ICLR
/// 2020): an average in every step until step `from`, then rounds of the options' period.
[[nodiscard]] RONDO_SYNC_API PeriodPolicy post_local(std::int64_t from);

/// The quadratic synchronisation rule (Gu, Lyu, Arora, Zhang, Huang, "A quadratic synchronization
/// rule for distributed deep learning", ICLR 2024):
///
///     K = max(K0, floor((alpha / learning rate)^2)),  K0 the options' period
///
/// As rates fall, rounds become longer, up to 2^31 - 1 steps; flush() ends the last one. Throws
/// std::invalid_argument unless alpha is positive.
[[nodiscard]] RONDO_SYNC_API PeriodPolicy qsr(double alpha);

/// The same where rates rise to `rate` in the steps before `warmup_steps`: rounds that begin there
/// are as long as with `rate`, as in the paper. By their own rates they would be the longest.
[[nodiscard]] RONDO_SYNC_API PeriodPolicy qsr(double alpha, std::int64_t warmup_steps, double rate);

/// AdaComm (Wang, Joshi, "Adaptive communication strategies to achieve the best error-runtime
/// trade-off in local-update SGD", SysML 2019), of the training loss F:
///
///     K = ceil(sqrt(F / F0) K0), from 1 to K0,  K0 the options' period
///
/// F is that of the round before, F0 that of the first one, over all ranks; needs `sums_losses`.
/// Choices: K is chosen for every round, and not once a minute, so that it does not depend on the
/// clock; it may rise again, because a minimum of noisy losses would only fall; and the learning
/// rate is left out.
[[nodiscard]] RONDO_SYNC_API PeriodPolicy adaptive();

}  // namespace rondo::sync
