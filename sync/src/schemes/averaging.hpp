#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/scheme_base.hpp>

namespace rondo::sync {

/// Which average is due after a local step, and over which ranks.
class AveragingSchedule {
 public:
  /// Throws std::invalid_argument, naming `scheme`, when periods or groups do not nest.
  AveragingSchedule(std::string_view scheme, std::int64_t period,
                    const std::vector<AveragingLevel>& levels,
                    const transport::Communicator& outer);

  /// Of a round, where nothing else decides about it.
  [[nodiscard]] std::int64_t period() const noexcept { return period_; }

  /// Is an average of some level due after `steps` > 0 steps of a round, on whichever ranks?
  [[nodiscard]] bool is_level_due_after(std::int64_t steps) const noexcept;

  /// The group of the slowest level that is due after `steps` > 0 steps of a round; null when none
  /// is, or when this rank is alone there.
  [[nodiscard]] transport::Communicator* group_due_after(std::int64_t steps) const noexcept;

 private:
  std::int64_t period_;
  std::vector<AveragingLevel> levels_;  // from the fastest to the slowest
};

/// What all ranks hold alike from round to round: the parameters W that a round starts from, and
/// with momentum the velocity V. See ReductionMomentum for what happens to them.
class CommonModel {
 public:
  /// Throws std::invalid_argument, naming `scheme`, when `momentum` is out of range.
  CommonModel(std::string_view scheme, const ReductionMomentum& momentum, std::size_t size);

  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const float> velocity() const noexcept { return velocity_; }

  /// Is a round's step plainly W = W + D?
  [[nodiscard]] bool is_plain() const noexcept {
    return momentum_.mu == 0.0F && momentum_.outer_rate == 1.0F;
  }

  /// A step of the round under way has been made at this learning rate.
  void count_step(double learning_rate) noexcept { round_rates_ += learning_rate; }

  /// A round begins from here: W = parameters; V stays.
  void begin_round(std::span<const float> parameters);

  /// A round has ended in a plain average: W = W + D, and V stays.
  void add(std::span<const float> displacement);

  /// A round has ended whose mean displacement is D, which is used up: W moves as the momentum
  /// says.
  void advance(std::span<float> displacement);

  void write(ByteWriter& writer) const;
  void read(ByteReader& reader);

 private:
  [[nodiscard]] float carried_over() noexcept;

  ReductionMomentum momentum_;
  std::vector<float> parameters_;
  std::vector<float> velocity_;  // empty without momentum
  double round_rates_ = 0.0;     // sum of the rates of this round's steps
  double last_rates_ = 0.0;      // of the rounds before: the last sum that was not 0
};

}  // namespace rondo::sync
