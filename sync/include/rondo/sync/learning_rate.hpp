#pragma once

#include <cstdint>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

enum class Decay : std::uint8_t { constant, cosine, steps };

/// The learning rate of every step: a linear warm-up from base/warmup_steps to base, then
///
/// - constant: the base;
/// - cosine: a half cosine down to `final_rate` at `total_steps`;
/// - steps: the base, multiplied by `factor` once for every milestone that is reached.
struct LearningRate {
  double base = 0.1;
  double final_rate = 0.0;
  Decay decay = Decay::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::vector<std::int64_t> milestones = {};  ///< steps from the start of training, in any order
  double factor = 0.1;                        ///< from step `milestone` on

  /// Of step 0 <= step.
  [[nodiscard]] RONDO_SYNC_API double at(std::int64_t step) const noexcept;
};

}  // namespace rondo::sync
