#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/plan.hpp>

#include "layers/kernel_memories.hpp"
#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"

namespace rondo::train {

constexpr std::size_t most_layouts = 0xFE;  // two more numbers mean something else

// How one layer runs in the best way that was found. Its costs are those of one pass.
struct ChosenOption {
  LayerOption option = {};
  double redistribution = 0.0;  // seconds, of what the layer reads
};

struct FoundLayouts {
  std::vector<ChosenOption> layers = {};
  double closing = 0.0;        // seconds of gathering the logits, in one pass
  double seconds = 0.0;        // of the step
  std::uint64_t elements = 0;  // of all options, the model's input and redistributed values
};

// The fastest choice of an option for each layer whose elements are at most `most_elements` (0: any
// number); none if there is no such choice. Dynamic programming over the layers in order. Throws
// std::invalid_argument where more than 4 values are still to be read.
[[nodiscard]] std::optional<FoundLayouts> search_layouts(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const RelayoutTable& relayouts,
    const std::vector<std::vector<LayerOption>>& options, std::uint64_t most_elements);

// The bytes of plan.hpp for one split of all layers: of the rank that needs most, among the first
// 16 of a replica, its middle and its last. Everything is counted as the trainer allocates it from
// the memory that train.memory_limit limits.
[[nodiscard]] std::uint64_t rank_bytes(KernelMemories& kernels, const Model& model,
                                       const std::vector<LayerSplit>& splits, ProcessGrid grid,
                                       const PlanOptions& options);

// The fastest layouts on a grid that fit into options.memory_limit; none if nothing does. Their
// elements are those of a rank, with the executor's buffers for gradients.
[[nodiscard]] std::optional<FoundLayouts> search_within_memory(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const ComputeCosts& costs);

}  // namespace rondo::train
