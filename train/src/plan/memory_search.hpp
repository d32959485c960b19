#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout_search.hpp"

namespace rondo::train {

struct FittingLayouts {
  FoundLayouts layouts = {};
  std::uint64_t words = 0;  // of a rank, with the executor's buffers for gradients
};

// The fastest layouts on a grid that fit into options.memory_limit; none if nothing does.
[[nodiscard]] std::optional<FittingLayouts> search_within_memory(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const ComputeCosts& costs);

}  // namespace rondo::train
