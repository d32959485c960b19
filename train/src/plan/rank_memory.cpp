#include "plan/rank_memory.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "executor/graph.hpp"
#include "executor/lowering.hpp"
#include "plan/word_bytes.hpp"

namespace rondo::train {
namespace {

constexpr int positions_looked_at = 16;

std::int64_t ceiling(std::int64_t count, std::int64_t parts) { return (count + parts - 1) / parts; }

std::uint64_t sum_of_words(const std::vector<std::int64_t>& words) {
  return static_cast<std::uint64_t>(std::reduce(words.begin(), words.end()));
}

// A batch of the group as it is loaded: two buffers for training, one for the test set.
std::uint64_t batch_bytes(const Model& model, std::int64_t images) {
  return static_cast<std::uint64_t>(3 * images * (model.input.image() + 1)) * word_bytes;
}

// Parameters, gradients, the copy for evaluation, the optimizer's state, the sum over pieces; the
// statistics and their copy.
std::uint64_t array_bytes(const ParameterLayout& layout, const PlanOptions& options) {
  const auto copies =
      static_cast<std::uint64_t>(3 + options.optimizer_words) + (options.pieces > 1 ? 1U : 0U);
  return word_bytes * (copies * layout.parameter_count + 2 * layout.statistic_count);
}

// Of every value, of the rank in one position; a value has memory even where it has no element.
std::vector<std::int64_t> value_sizes(const Lowering& lowering, int position, std::int64_t images) {
  std::vector<std::int64_t> sizes;
  for (const Partition& value : lowering.values) {
    const tensor::Shape own = value.box_of(position).shape();
    const std::int64_t most = ceiling(images, value.parts().n);
    sizes.push_back(std::max<std::int64_t>(own.with_n(most).size(), 1));
  }
  return sizes;
}

// The input is the loaded batch where the rank reads all of it.
std::uint64_t activation_bytes(const Lowering& lowering, int position, std::int64_t images) {
  std::vector<std::int64_t> sizes = value_sizes(lowering, position, images);
  const std::uint64_t gradients = sum_of_words(plan_backward(lowering.graph, sizes).elements);
  if (lowering.values.front().blocks() == 1) sizes.front() = 0;
  return word_bytes * (sum_of_words(sizes) + gradients);
}

std::uint64_t kernel_bytes(KernelMemories& kernels, const Model& model, const Lowering& lowering,
                           int position) {
  std::size_t own = 0;
  std::size_t scratchpad = 0;
  std::size_t reorder_buffer = 0;
  for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
    const tensor::KernelMemory memory =
        memory_of_node(kernels, model, lowering, node, position, BatchNormGroup::rank);
    own += memory.own;
    scratchpad = std::max(scratchpad, memory.scratchpad);
    reorder_buffer = std::max(reorder_buffer, memory.reorder_buffer);
  }
  return own + scratchpad + reorder_buffer;
}

std::set<int> positions_of(int ranks) {
  std::set<int> positions = {0, ranks / 2, ranks - 1};
  for (int position = 0; position < std::min(ranks, positions_looked_at); ++position) {
    positions.insert(position);
  }
  return positions;
}

}  // namespace

std::uint64_t rank_bytes(KernelMemories& kernels, const Model& model,
                         const std::vector<LayerSplit>& splits, ProcessGrid grid,
                         const PlanOptions& options) {
  const std::int64_t images = ceiling(ceiling(options.batch, grid.pc), options.pieces);
  const Lowering lowering = lower(model, splits, grid.pr, images);
  std::uint64_t most = 0;
  for (const int position : positions_of(grid.pr)) {
    most = std::max(most, array_bytes(layout_of(model, lowering, position), options) +
                              activation_bytes(lowering, position, images) +
                              kernel_bytes(kernels, model, lowering, position));
  }
  return most + batch_bytes(model, images);
}

}  // namespace rondo::train
