#pragma once

#include <string>

#include <rondo/train/plan.hpp>

#include "plan/weight_layer.hpp"

namespace rondo::train {

// Why nobody should use this grid, as GridPlan::refused says it; empty: usable.
[[nodiscard]] std::string refusal_of(const std::vector<WeightLayer>& layers, const GridPlan& grid,
                                     const PlanOptions& options);

}  // namespace rondo::train
