#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
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

  /// The length of a round, where nothing else decides about it.
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

/// The values that all ranks hold alike from round to round: the parameters W that a round starts
/// from, and with momentum the velocity V. See ReductionMomentum for what happens to them.
class CommonModel {
 public:
  /// Throws std::invalid_argument, naming `scheme`, when `momentum` is out of range.
  CommonModel(std::string_view scheme, const ReductionMomentum& momentum, std::size_t size);

  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const float> velocity() const noexcept { return velocity_; }

  /// Rounds are steps of `outer` from now on, which copies of this model share. The model's
  /// parameters are those from `offset` on of the optimizer's.
  void step_by(std::shared_ptr<Optimizer> outer, double learning_rate, std::size_t offset) {
    outer_ = std::move(outer);
    outer_rate_ = learning_rate;
    outer_offset_ = offset;
  }

  /// Is a round's step plainly W = W + D?
  [[nodiscard]] bool is_plain() const noexcept {
    return outer_ == nullptr && momentum_.mu == 0.0F && momentum_.outer_rate == 1.0F;
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

  /// The model that advance() would make of this one, but for the state of the outer optimizer.
  [[nodiscard]] CommonModel advanced(std::span<const float> displacement) const;

  void write(ByteWriter& writer) const;
  void read(ByteReader& reader);

 private:
  [[nodiscard]] float carried_over() noexcept;
  [[nodiscard]] Update outer_update() const noexcept {
    return {.gradient_scale = -1.0F, .learning_rate = outer_rate_, .index = outer_steps_};
  }

  ReductionMomentum momentum_;
  std::shared_ptr<Optimizer> outer_;  // null: as the momentum says
  double outer_rate_ = 1.0;
  std::size_t outer_offset_ = 0;
  std::int64_t outer_steps_ = 0;
  std::vector<float> parameters_;
  std::vector<float> velocity_;  // empty without momentum
  double round_rates_ = 0.0;     // sum of the rates of this round's steps
  double last_rates_ = 0.0;      // of the rounds before: the last sum that was not 0
};

}  // namespace rondo::sync
