#pragma once

#include <cstdint>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

enum class Decay : std::uint8_t { constant, cosine };

/// The learning rate of every step: a linear warm-up from base/warmup_steps to base, then
/// constant or a half cosine down to `final_rate` at `total_steps`.
struct LearningRate {
  double base = 0.1;
  double final_rate = 0.0;
  Decay decay = Decay::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;

  /// Of step 0 <= step.
  [[nodiscard]] RONDO_SYNC_API double at(std::int64_t step) const noexcept;
};

}  // namespace rondo::sync
