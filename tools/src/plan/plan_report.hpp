#pragma once

#include <string>
#include <vector>

#include <rondo/train/plan.hpp>

namespace rondo::tools {

/// An array with one object per grid. Names are stable: strategy, ranks, pr, pc,
/// communication_seconds, compute_seconds (null: not predicted), bytes_per_rank, refused (null:
/// usable, else the reason).
[[nodiscard]] std::string plans_as_json(const std::vector<train::GridPlan>& plans);

/// One line per grid in the given order, then the layers of the first.
[[nodiscard]] std::string plans_as_table(const std::vector<train::GridPlan>& plans);

}  // namespace rondo::tools
