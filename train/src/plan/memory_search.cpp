#include "plan/memory_search.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "executor/graph.hpp"
#include "plan/word_bytes.hpp"

namespace rondo::train {
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
