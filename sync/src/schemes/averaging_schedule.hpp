#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <rondo/sync/hierarchical.hpp>

namespace rondo::sync {

/// Which average is due after a local step, and over which ranks.
class AveragingSchedule {
 public:
  /// Throws std::invalid_argument, naming `scheme`, when periods or groups do not nest.
  AveragingSchedule(std::string_view scheme, const HierarchicalOptions& options,
                    const transport::Communicator& outer);

  [[nodiscard]] std::int64_t period() const noexcept { return period_; }

  /// Does a round end with its `steps`-th step?
  [[nodiscard]] bool round_ends_after(std::int64_t steps) const noexcept {
    return steps == period_;
  }

  /// The group of the slowest level that is due after `steps` steps, 0 < steps < period; null
  /// when none is, or when this rank is alone there.
  [[nodiscard]] transport::Communicator* group_due_after(std::int64_t steps) const noexcept;

 private:
  std::int64_t period_;
  std::vector<AveragingLevel> levels_;  // from the fastest to the slowest
};

}  // namespace rondo::sync
