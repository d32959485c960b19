#pragma once

#include <vector>

#include <rondo/train/plan.hpp>

#include "plan/message_costs.hpp"

namespace rondo::train {

// Throws std::invalid_argument where an option is impossible: one that any prediction needs, and
// one that grids need besides.
void check_costs(const PlanOptions& options);
void check(const PlanOptions& options);

// The rows P_r of all grids P_r x (P/P_r) that give every column a sample, rising.
[[nodiscard]] std::vector<int> grid_rows(const PlanOptions& options);

}  // namespace rondo::train
