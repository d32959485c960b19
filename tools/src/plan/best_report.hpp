#pragma once

#include <string>
#include <vector>

#include <rondo/train/plan_best.hpp>

namespace rondo::tools {

/// As plans_as_json(), with strategy "best" and, of each grid, its layers. Names are stable:
/// documented in docs/command-line.md.
[[nodiscard]] std::string best_as_json(const std::vector<train::BestPlan>& plans);

/// One line per grid, then the layers of the first, and the [grid] section that trains so.
[[nodiscard]] std::string best_as_table(const std::vector<train::BestPlan>& plans);

}  // namespace rondo::tools
