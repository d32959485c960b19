#pragma once

#include <vector>

#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>

#include "table.hpp"

namespace rondo::tools {

// Names of columns in CSV and JSON are stable; docs/command-line.md says what they mean.

/// A row for each grid; seconds of computation are nothing where they were not predicted.
[[nodiscard]] Table plans_table(const std::vector<train::GridPlan>& plans);
[[nodiscard]] Table layers_table(const std::vector<train::LayerPlan>& layers);

/// The same where each layer has a split of its own: each row has a table of its layers.
[[nodiscard]] Table best_table(const std::vector<train::BestPlan>& plans);
[[nodiscard]] Table layers_table(const std::vector<train::BestLayer>& layers);

/// A row for each number of ranks.
[[nodiscard]] Table scaling_table(const std::vector<train::ScalingPoint>& points);

}  // namespace rondo::tools
