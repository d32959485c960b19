#include <rondo/sync/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rondo::sync {

double LearningRate::at(std::int64_t step) const noexcept {
  if (step < warmup_steps) {
    return base * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == Decay::constant) return base;
  if (decay == Decay::steps) {
    double rate = base;
    for (const std::int64_t milestone : milestones) {
      if (milestone <= step) rate *= factor;
    }
    return rate;
  }
  const auto span = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
  return final_rate + 0.5 * (base - final_rate) * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace rondo::sync
