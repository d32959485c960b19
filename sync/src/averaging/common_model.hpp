#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/reduction_momentum.hpp>

#include "state/byte_reader.hpp"
#include "state/byte_writer.hpp"

namespace rondo::sync {

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

  /// A round begins; its first step has this learning rate.
  void begin_round(double learning_rate) noexcept { round_rate_ = learning_rate; }

  /// W = parameters; V stays.
  void take(std::span<const float> parameters);

  /// W = W + D.
  void add(std::span<const float> displacement);

  /// The step of a round whose mean displacement is D, which is used up.
  void advance(std::span<float> displacement);

  void write(ByteWriter& writer) const;
  void read(ByteReader& reader);

 private:
  [[nodiscard]] float carried_over() noexcept;

  ReductionMomentum momentum_;
  std::vector<float> parameters_;
  std::vector<float> velocity_;  // empty without momentum
  double round_rate_ = 0.0;      // of this round's first step
  double last_rate_ = 0.0;       // of the rounds before: the last that was not 0
};

}  // namespace rondo::sync
