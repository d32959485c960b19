#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/grid.hpp>
#include <rondo/train/layer_split.hpp>
#include <rondo/train/plan.hpp>

#include "layers/kernel_memories.hpp"
#include "plan/layout_search.hpp"

namespace rondo::train {

// The bytes of plan.hpp for one split of all layers: of the rank that needs most, among the first
// 16 of a group, its middle and its last. Everything is counted as the trainer takes it from the
// memory that train.memory_limit limits.
[[nodiscard]] std::uint64_t rank_bytes(KernelMemories& kernels, const Model& model,
                                       const std::vector<LayerSplit>& splits, ProcessGrid grid,
                                       const PlanOptions& options);

struct FittingLayouts {
  FoundLayouts layouts = {};
  std::uint64_t words = 0;  // of a rank, with the executor's buffers for gradients
};

// The fastest layouts on a grid that fit into options.memory_limit; none if nothing does.
[[nodiscard]] std::optional<FittingLayouts> search_within_memory(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const ComputeCosts& costs);

}  // namespace rondo::train
