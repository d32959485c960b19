// What one rank needs of memory for a choice of splits, and the fastest choice that fits into a
// limit: the words that are kept are limited step by step, until the bytes fit.

#include "plan/memory_search.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "executor/graph.hpp"
#include "executor/lowering.hpp"
#include "plan/collective_cost.hpp"

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

namespace {

using Options = std::vector<std::vector<LayerOption>>;  // by layer

// The copy of the logits has a gradient, too.
void count_closing(const GridJob& job, const std::vector<ValueLayout>& layouts,
                   std::vector<LayerOption>& of_logits) {
  for (LayerOption& option : of_logits) {
    const std::optional<int> as = closing_layout(option.y, layouts);
    if (!as) continue;
    const ValueLayout& layout = layouts[static_cast<std::size_t>(*as)];
    option.gradient = std::max(option.gradient, held_words(job, layout, job.shapes.back()));
  }
}

Options all_options(const GridJob& job, const std::vector<ValueLayout>& layouts,
                    const ComputeCosts& costs) {
  Options options;
  for (std::size_t i = 0; i < job.model.layers.size(); ++i) {
    options.push_back(options_of(job, layer_of(job, i), layouts, costs));
  }
  count_closing(job, layouts, options.back());
  return options;
}

// Words that a buffer may have, the most first.
std::set<std::uint64_t, std::greater<>> gradients_of(const Options& options) {
  std::set<std::uint64_t, std::greater<>> words;
  for (const std::vector<LayerOption>& layer : options) {
    for (const LayerOption& option : layer) words.insert(option.gradient);
  }
  return words;
}

void remove_larger(Options& options, std::uint64_t gradient) {
  for (std::vector<LayerOption>& layer : options) {
    std::erase_if(layer, [&](const LayerOption& option) { return option.gradient > gradient; });
  }
}

std::uint64_t largest_gradient(const FoundLayouts& found) {
  std::uint64_t largest = 0;
  for (const ChosenOption& layer : found.layers) {
    largest = std::max(largest, layer.option.gradient);
  }
  return largest;
}

class MemorySearch {
 public:
  MemorySearch(const GridJob& job, const std::vector<ValueLayout>& layouts,
               const ComputeCosts& costs)
      : job_(job),
        layouts_(layouts),
        relayouts_(job, layouts),
        options_(all_options(job, layouts, costs)),
        buffers_(plan_backward(job.model).elements.size()),
        limit_(job.options.memory_limit / word_bytes) {}

  std::optional<FittingLayouts> run() {
    if (job_.options.memory_limit == 0) return search(0);
    std::optional<FittingLayouts> best;
    for (const std::uint64_t gradient : gradients_of(options_)) {
      if (buffers_ * gradient >= limit_) continue;
      remove_larger(options_, gradient);
      std::optional<FittingLayouts> found = search(0);
      // Fewer options make nothing faster.
      if (!found || (best && best->layouts.seconds <= found->layouts.seconds)) return best;
      if (found->words <= limit_) return found;
      found = search(limit_ - buffers_ * gradient);
      if (found && (!best || found->layouts.seconds < best->layouts.seconds)) {
        best = std::move(found);
      }
    }
    return best;
  }

 private:
  [[nodiscard]] std::optional<FittingLayouts> search(std::uint64_t most_words) const {
    std::optional<FoundLayouts> found =
        search_layouts(job_, layouts_, relayouts_, options_, most_words);
    if (!found) return std::nullopt;
    const std::uint64_t words = found->words + buffers_ * largest_gradient(*found);
    return FittingLayouts{.layouts = std::move(*found), .words = words};
  }

  const GridJob& job_;
  const std::vector<ValueLayout>& layouts_;
  RelayoutTable relayouts_;
  Options options_;
  std::uint64_t buffers_;
  std::uint64_t limit_;
};

}  // namespace

std::optional<FittingLayouts> search_within_memory(const GridJob& job,
                                                   const std::vector<ValueLayout>& layouts,
                                                   const ComputeCosts& costs) {
  return MemorySearch(job, layouts, costs).run();
}

}  // namespace rondo::train
