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

// A way to reach a state of the search.
struct Label {
  StepEnd time = {};
  std::uint64_t elements = 0;
  std::size_t step = 0;  // its last step, by which the way is found again
};

// The ways to reach one state of which none is better than another in all: the end of the step, the
// network's time and, where they matter, elements. The end rises from label to label.
//
// At most 128 are kept; of more every second one is left out, but never the fastest nor the
// smallest.
class ParetoFront {
 public:
  // Would this way be kept?
  [[nodiscard]] bool wants(const Label& label, bool elements_matter) const noexcept;
  // A way that is wanted.
  void insert(const Label& label, bool elements_matter);

  [[nodiscard]] const std::vector<Label>& labels() const noexcept { return labels_; }

 private:
  void thin_out();

  std::vector<Label> labels_;
};

// The layouts of all live values, which a later layer reads, by their numbers: a state of the
// search. Two bytes for each value, in order: how it was written, and how it lies besides since a
// reader wanted it otherwise (of several such copies, the last).
using LiveLayouts = std::uint64_t;

constexpr std::size_t most_live_values = 4;
constexpr int no_copy = 0xFE;
constexpr std::size_t most_layouts = 0xFE;  // two more numbers mean something else

[[nodiscard]] constexpr int layout_in(LiveLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (16 * slot)) & 0xFFU);
}
[[nodiscard]] constexpr int copy_in(LiveLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (16 * slot + 8)) & 0xFFU);
}

// One value's part of a state.
[[nodiscard]] constexpr LiveLayouts live_value(int layout, int copy, std::size_t slot) noexcept {
  return static_cast<LiveLayouts>(layout | (copy << 8)) << (16 * slot);
}

[[nodiscard]] constexpr LiveLayouts replaced(LiveLayouts state, std::size_t slot, int layout,
                                             int copy) noexcept {
  return (state & ~(LiveLayouts{0xFFFF} << (16 * slot))) | live_value(layout, copy, slot);
}

// The effect of a layer on a state.
struct LayerStep {
  std::vector<std::size_t> inputs = {};  // the slots of what it reads
  // Where the values of the next state come from: a slot, or (none) from this layer.
  std::vector<std::optional<std::size_t>> next = {};

  // The next state, where the layer has written `y`.
  [[nodiscard]] LiveLayouts apply(LiveLayouts state, int y) const noexcept;
};

// A step for each layer. At first value 0 is live, at last the model's last value alone. Throws
// std::invalid_argument where more than 4 are live.
[[nodiscard]] std::vector<LayerStep> steps_of(const Model& model);

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
// number); none if there is no such choice. Dynamic programming over the layers in order.
[[nodiscard]] std::optional<FoundLayouts> search_layouts(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const RelayoutTable& relayouts,
    const std::vector<std::vector<LayerOption>>& options, std::uint64_t most_elements);

// The bytes of plan.hpp for one split of all layers: of the rank that needs most, among the first
// 16 of a replica, its middle and its last. Everything is counted as the trainer allocates it from
// the memory that train.memory_limit limits.
[[nodiscard]] std::uint64_t rank_bytes(KernelMemories& kernels, const Model& model,
                                       const std::vector<LayerSplit>& splits, ProcessGrid grid,
                                       const PlanOptions& options);

struct FittingLayouts {
  FoundLayouts layouts = {};
  std::uint64_t elements = 0;  // of a rank, with the executor's buffers for gradients
};

// The fastest layouts on a grid that fit into options.memory_limit; none if nothing does.
[[nodiscard]] std::optional<FittingLayouts> search_within_memory(
    const GridJob& job, const std::vector<ValueLayout>& layouts, const ComputeCosts& costs);

}  // namespace rondo::train
