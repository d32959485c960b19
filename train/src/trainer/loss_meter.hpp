#pragma once

#include <cstdint>

#include <rondo/tensor/cross_entropy.hpp>

#include "trainer/loss_sums.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// Adds up the training loss of one epoch. A step costs no communication; the ranks meet in
/// reduce(), at log points and at the end of the epoch.
class LossMeter {
 public:
  explicit LossMeter(transport::World& world) noexcept : world_(world) {}

  /// A new epoch begins.
  void start() noexcept;

  /// This rank's part of step `step`, counted from 1 over the whole run.
  void add(std::int64_t step, const tensor::Loss& loss, std::int64_t samples) noexcept;

  /// The sums over all ranks since the last reduce(). Collective. Throws NumericError on every
  /// rank when the loss of some rank was NaN or Inf, naming the first such step.
  LossSums reduce();

  /// This rank's own, of the epoch so far.
  [[nodiscard]] const LossSums& own() const noexcept { return own_; }
  /// All ranks', of the epoch up to the last reduce().
  [[nodiscard]] const LossSums& total() const noexcept { return total_; }

 private:
  [[noreturn]] void report_not_finite();

  transport::World& world_;
  LossSums own_;
  LossSums window_;  // own, since the last reduce()
  LossSums total_;
  std::int64_t first_bad_step_ = 0;  // 0: none
};

}  // namespace rondo::train
