// The fastest split of every layer on one grid, by dynamic programming over the layers in order. A
// state is how all values that are still to be read are laid out; two ways that lead to the same
// state have the same future. One that takes longer may still have less to reduce, or with a limit
// of memory need fewer elements: so each state keeps a pareto front.
//
// Behind the search: what one rank needs of memory for a choice of splits, and the fastest choice
// that fits into a limit. The elements that the search may use are limited step by step, until the
// bytes fit.

#include "plan/layout_search.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "executor/graph.hpp"
#include "executor/lowering.hpp"

namespace rondo::train {
namespace {

// A way to reach a state of the search.
struct Label {
  StepEnd time = {};
  std::uint64_t elements = 0;
  std::size_t step = 0;  // its last step, by which the way is found again
};

bool is_no_worse(const Label& a, const Label& b, bool elements_matter) noexcept {
  return a.time.end <= b.time.end && a.time.network <= b.time.network &&
         (!elements_matter || a.elements <= b.elements);
}

// A longer front is thinned out: every second label goes, and the first and the last stay. So a
// plan may be missed that is a little faster; a plan that was found always fits.
constexpr std::size_t most_labels = 128;

// The ways to reach one state of which none is better than another in all: the end of the step, the
// network's time and, where they matter, elements. The end rises from label to label. The fastest
// and the smallest are never left out.
class ParetoFront {
 public:
  // Would this way be kept?
  [[nodiscard]] bool wants(const Label& label, bool elements_matter) const noexcept {
    return std::ranges::none_of(
        labels_, [&](const Label& other) { return is_no_worse(other, label, elements_matter); });
  }

  // A way that is wanted.
  void insert(const Label& label, bool elements_matter) {
    std::erase_if(labels_,
                  [&](const Label& other) { return is_no_worse(label, other, elements_matter); });
    const auto end_of = [](const Label& each) { return each.time.end; };
    labels_.insert(std::ranges::upper_bound(labels_, label.time.end, {}, end_of), label);
    if (labels_.size() > most_labels) thin_out();
  }

  [[nodiscard]] const std::vector<Label>& labels() const noexcept { return labels_; }

 private:
  void thin_out() {
    const auto smallest = std::ranges::min_element(labels_, {}, &Label::elements) - labels_.begin();
    std::vector<Label> thinned;
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (i % 2 == 0 || static_cast<std::ptrdiff_t>(i) == smallest) thinned.push_back(labels_[i]);
    }
    labels_ = std::move(thinned);
  }

  std::vector<Label> labels_;
};

// The layouts of all live values, which a later layer reads, by their numbers: a state of the
// search. Two bytes for each value, in order: how it was written, and how it lies besides since a
// reader wanted it otherwise (of several such copies, the last).
using LiveLayouts = std::uint64_t;

constexpr std::size_t most_live_values = 4;
constexpr int no_copy = 0xFE;

constexpr int layout_in(LiveLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (16 * slot)) & 0xFFU);
}
constexpr int copy_in(LiveLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (16 * slot + 8)) & 0xFFU);
}

// One value's part of a state.
constexpr LiveLayouts live_value(int layout, int copy, std::size_t slot) noexcept {
  return static_cast<LiveLayouts>(layout | (copy << 8)) << (16 * slot);
}

constexpr LiveLayouts replaced(LiveLayouts state, std::size_t slot, int layout, int copy) noexcept {
  return (state & ~(LiveLayouts{0xFFFF} << (16 * slot))) | live_value(layout, copy, slot);
}

// The effect of a layer on a state.
struct LayerStep {
  std::vector<std::size_t> inputs = {};  // the slots of what it reads
  // Where the values of the next state come from: a slot, or (none) from this layer.
  std::vector<std::optional<std::size_t>> next = {};

  // The next state, where the layer has written `y`.
  [[nodiscard]] LiveLayouts apply(LiveLayouts state, int y) const noexcept {
    LiveLayouts after = 0;
    for (std::size_t slot = 0; slot < next.size(); ++slot) {
      const std::optional<std::size_t>& from = next[slot];
      after |= from ? live_value(layout_in(state, *from), copy_in(state, *from), slot)
                    : live_value(y, no_copy, slot);
    }
    return after;
  }
};

// By value: the last layer that reads it; of the last value none does, so that it stays live.
std::vector<std::size_t> last_readers(const Model& model) {
  std::vector<std::size_t> last(model.layers.size() + 1, 0);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    for (const ValueId value : model.layers[i].inputs) last[value] = i;
  }
  last.back() = model.layers.size();
  return last;
}

std::size_t slot_of(ValueId value, const std::vector<ValueId>& live) {
  return static_cast<std::size_t>(std::ranges::find(live, value) - live.begin());
}

// A step for each layer: which values are live behind it, and in which slot of a state each lies.
// At first value 0 is live, at last the model's last value alone. A value is live from its writer
// to its last reader; shortcuts keep theirs live over a whole block.
std::vector<LayerStep> steps_of(const Model& model) {
  const std::vector<std::size_t> last = last_readers(model);
  std::vector<LayerStep> steps;
  std::vector<ValueId> live = {0};
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::vector<ValueId>& inputs = model.layers[i].inputs;
    LayerStep step;
    for (const ValueId value : inputs) step.inputs.push_back(slot_of(value, live));
    std::vector<ValueId> after;
    for (const ValueId value : live) {
      if (last[value] <= i) continue;
      step.next.emplace_back(slot_of(value, live));
      after.push_back(value);
    }
    if (last[i + 1] > i) {
      step.next.emplace_back(std::nullopt);
      after.push_back(i + 1);
    }
    if (after.size() > most_live_values) {
      throw std::invalid_argument("plan: behind " + model.layers[i].name +
                                  " more than 4 values are still to be read");
    }
    steps.push_back(std::move(step));
    live = std::move(after);
  }
  return steps;
}

constexpr int as_wanted = 0xFF;  // the layout of the model's input: what its readers want

// One decision; those before it follow from `before`.
struct Step {
  std::size_t before = 0;
  std::size_t option = 0;
  double redistribution = 0.0;
};

// The cost of a layer's reading of its inputs, and how they lie afterwards.
struct Reading {
  LiveLayouts state = 0;
  double seconds = 0.0;
  std::uint64_t elements = 0;
};

using ParetoFronts = std::map<LiveLayouts, ParetoFront>;

class Search {
 public:
  Search(const GridJob& job, const std::vector<ValueLayout>& layouts,
         const RelayoutTable& relayouts, const std::vector<std::vector<LayerOption>>& options,
         std::uint64_t most_elements)
      : job_(job),
        layouts_(layouts),
        relayouts_(relayouts),
        options_(options),
        most_elements_(most_elements),
        steps_(steps_of(job.model)) {}

  std::optional<FoundLayouts> run() {
    ways_.push_back({});
    ParetoFronts fronts;
    fronts[live_value(as_wanted, no_copy, 0)].insert({}, false);
    for (std::size_t layer = 0; layer < steps_.size(); ++layer) fronts = advance(layer, fronts);
    return best_of(fronts);
  }

 private:
  [[nodiscard]] bool elements_matter() const noexcept { return most_elements_ > 0; }

  ParetoFronts advance(std::size_t layer, const ParetoFronts& fronts) {
    ParetoFronts next;
    for (const auto& [state, labels] : fronts) {
      for (std::size_t i = 0; i < options_[layer].size(); ++i) {
        extend(layer, i, state, labels, next);
      }
    }
    return next;
  }

  // Goes on with one option from one state, if it may follow there.
  void extend(std::size_t layer, std::size_t index, LiveLayouts state, const ParetoFront& labels,
              ParetoFronts& next) {
    const LayerOption& option = options_[layer][index];
    const LayerStep& step = steps_[layer];
    const LayerSpec& spec = job_.model.layers[layer];
    if (!may_read(layer, option, layout_in(state, step.inputs[0]))) return;
    Reading reading{.state = state};
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      reading = read(reading, step.inputs[i], spec.inputs[i], option.x);
    }
    ParetoFront& reached = next[step.apply(reading.state, option.y)];
    for (const Label& label : labels.labels()) {
      const Label after{label.time.with(option, reading.seconds, job_.options.micro_batches),
                        label.elements + option.elements + reading.elements, ways_.size()};
      // Elements only grow along a way, so one that is over the limit already is given up.
      if (elements_matter() && after.elements > most_elements_) continue;
      if (!reached.wants(after, elements_matter())) continue;
      // Decisions are kept in one list and refer to the one before, so that labels stay small; the
      // chosen way is followed back at the end.
      ways_.push_back({label.step, index, reading.seconds});
      reached.insert(after, elements_matter());
    }
  }

  // Layers without a split follow their input, which for the model's is by sample, where every rank
  // has one. Channel blocks are read in the order in which they lie; where there are none yet, they
  // are made in order.
  [[nodiscard]] bool may_read(std::size_t layer, const LayerOption& option, int x) const {
    const ValueLayout& wanted = layouts_[static_cast<std::size_t>(option.x)];
    const bool in_order = wanted.turn == 1;
    const bool follows = !layer_of(job_, layer).has_split();
    if (x == as_wanted) {
      const bool has_samples = layouts_.front().kind == SplitKind::sample;
      return follows && has_samples ? wanted.kind == SplitKind::sample : in_order;
    }
    if (follows) {
      const ValueLayout& lies = layouts_[static_cast<std::size_t>(x)];
      return wanted == layout_read_by(job_.model.layers[layer], {}, lies);
    }
    return cut_alike(wanted, layouts_[static_cast<std::size_t>(x)]) ? option.x == x : in_order;
  }

  // Reads one more value in a layout. Where it does not lie so, it becomes a second array; the
  // model's input is made as its first reader wants it.
  [[nodiscard]] Reading read(const Reading& before, std::size_t slot, ValueId value, int as) const {
    const int now = layout_in(before.state, slot);
    if (now == as || copy_in(before.state, slot) == as) return before;
    Reading after = before;
    after.elements += elements_of(value, as);
    if (now == as_wanted) {
      after.state = replaced(before.state, slot, as, no_copy);
    } else {
      after.seconds += relayouts_.seconds(value, now, as);
      after.state = replaced(before.state, slot, now, as);
    }
    return after;
  }

  [[nodiscard]] std::uint64_t elements_of(ValueId value, int layout) const {
    return held_elements(job_, layouts_[static_cast<std::size_t>(layout)], job_.shapes[value]);
  }

  // The last step: whole logits.
  [[nodiscard]] Reading close(int layout) const {
    const std::optional<int> as = closing_layout(layout, layouts_);
    if (!as) return {};
    const ValueId logits = job_.model.layers.size();
    return {.seconds = relayouts_.seconds(logits, layout, *as),
            .elements = elements_of(logits, *as)};
  }

  [[nodiscard]] std::optional<FoundLayouts> best_of(const ParetoFronts& fronts) const {
    FoundLayouts found{.seconds = std::numeric_limits<double>::infinity()};
    std::size_t last = 0;
    for (const auto& [state, labels] : fronts) {
      const Reading closing = close(layout_in(state, 0));
      const double of_all_passes = passes_of(job_.options) * closing.seconds;
      for (const Label& label : labels.labels()) {
        const std::uint64_t elements = label.elements + closing.elements;
        if (elements_matter() && elements > most_elements_) continue;
        if (label.time.end + of_all_passes >= found.seconds) continue;
        found.seconds = label.time.end + of_all_passes;
        found.closing = closing.seconds;
        found.elements = elements;
        last = label.step;
      }
    }
    if (last == 0) return std::nullopt;
    found.layers = chosen(last);
    return found;
  }

  [[nodiscard]] std::vector<ChosenOption> chosen(std::size_t last) const {
    std::vector<ChosenOption> layers(options_.size());
    for (std::size_t layer = layers.size(); layer-- > 0;) {
      const Step& step = ways_[last];
      layers[layer] = {options_[layer][step.option], step.redistribution};
      last = step.before;
    }
    return layers;
  }

  const GridJob& job_;
  const std::vector<ValueLayout>& layouts_;
  const RelayoutTable& relayouts_;
  const std::vector<std::vector<LayerOption>>& options_;
  std::uint64_t most_elements_;
  std::vector<LayerStep> steps_;
  std::vector<Step> ways_;  // all decisions so far; the first is none
};

}  // namespace

std::optional<FoundLayouts> search_layouts(const GridJob& job,
                                           const std::vector<ValueLayout>& layouts,
                                           const RelayoutTable& relayouts,
                                           const std::vector<std::vector<LayerOption>>& options,
                                           std::uint64_t most_elements) {
  return Search(job, layouts, relayouts, options, most_elements).run();
}

namespace {

std::uint64_t sum_of_elements(const std::vector<std::int64_t>& elements) {
  return static_cast<std::uint64_t>(std::reduce(elements.begin(), elements.end()));
}

// A rank's part of the replica's batches, with the labels of all images. Channels are whole.
std::uint64_t batch_bytes(const Lowering& lowering, int position, std::int64_t images,
                          const PlanOptions& options) {
  const Partition& input = lowering.values.front();
  Box part = input.box_of(position);
  part.c = {0, input.extents().c};
  const std::int64_t elements = part.size() + images;
  return static_cast<std::uint64_t>(options.buffered_batches * elements) * element_bytes;
}

// The optimizer's state, and the gradients once more if they are rounded to be sent; or what the
// scheme's own form says.
std::uint64_t update_bytes(const ParameterLayout& layout, ProcessGrid grid,
                           const std::vector<int>& slices, const PlanOptions& options) {
  if (options.update_bytes) return options.update_bytes(layout, grid, slices);
  const bool rounds = options.ranks > 1 && options.gradient_type != tensor::DataType::f32;
  const std::size_t rounded = rounds ? tensor::size_of(options.gradient_type) : 0;
  const auto kept = static_cast<std::uint64_t>(options.optimizer_elements * element_bytes);
  return (kept + rounded) * layout.parameter_count;
}

// Parameters, gradients, the copy for evaluation, the sum over micro-batches; the statistics and
// their copy; what updates take.
std::uint64_t array_bytes(const ParameterLayout& layout, ProcessGrid grid,
                          const std::vector<int>& slices, const PlanOptions& options) {
  const std::uint64_t copies = options.micro_batches > 1 ? 4 : 3;
  return element_bytes * (copies * layout.parameter_count + 2 * layout.statistic_count) +
         update_bytes(layout, grid, slices, options);
}

// The size of every value on the rank in one position; even a value without elements has memory.
std::vector<std::int64_t> value_sizes(const Lowering& lowering, int position, std::int64_t images) {
  std::vector<std::int64_t> sizes;
  for (const Partition& value : lowering.values) {
    const tensor::Shape own = value.box_of(position).shape();
    const std::int64_t most = largest_part(images, value.parts().n);
    sizes.push_back(std::max<std::int64_t>(own.with_n(most).size(), 1));
  }
  return sizes;
}

// The input is the loaded batch where the rank reads all of it in fp32. In bf16 the logits are kept
// in fp32, too.
std::uint64_t activation_bytes(const Lowering& lowering, int position, std::int64_t images,
                               tensor::DataType type) {
  std::vector<std::int64_t> sizes = value_sizes(lowering, position, images);
  const std::uint64_t gradients = sum_of_elements(plan_backward(lowering.graph, sizes).elements);
  const bool narrow = type != tensor::DataType::f32;
  if (lowering.values.front().blocks() == 1 && !narrow) sizes.front() = 0;
  const std::uint64_t logits =
      narrow ? element_bytes * static_cast<std::uint64_t>(sizes.back()) : 0;
  return tensor::size_of(type) * (sum_of_elements(sizes) + gradients) + logits;
}

std::uint64_t kernel_bytes(KernelMemories& kernels, const Model& model, const Lowering& lowering,
                           int position, BatchNormScope scope, tensor::DataType type) {
  std::size_t own = 0;
  std::size_t scratchpad = 0;
  std::size_t reorder_buffer = 0;
  for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
    const tensor::KernelMemory memory =
        memory_of_node(kernels, model, lowering, node, position, scope, type);
    // Each kernel has its own memory; scratchpad and reorder buffer are those of the engine.
    own += memory.own;
    scratchpad = std::max(scratchpad, memory.scratchpad);
    reorder_buffer = std::max(reorder_buffer, memory.reorder_buffer);
  }
  return own + scratchpad + reorder_buffer;
}

}  // namespace

std::uint64_t rank_bytes(KernelMemories& kernels, const Model& model,
                         const std::vector<LayerSplit>& splits, ProcessGrid grid,
                         const PlanOptions& options) {
  // The executor's memory is that of the largest micro-batch of the largest share.
  const std::int64_t images =
      largest_part(largest_part(options.batch, grid.pc), options.micro_batches);
  const Lowering lowering = lower(model, splits, grid.pr, images);
  const std::vector<int> slices = slices_in_replica(model, lowering, grid.pr);
  std::uint64_t most = 0;
  for (const int position : positions_looked_at(grid.pr)) {
    most = std::max(most, array_bytes(layout_of(model, lowering, position), grid, slices, options) +
                              activation_bytes(lowering, position, images, options.type) +
                              kernel_bytes(kernels, model, lowering, position, options.batch_norm,
                                           options.type) +
                              batch_bytes(lowering, position, images, options));
  }
  return most;
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
    option.gradient = std::max(option.gradient, held_elements(job, layout, job.shapes.back()));
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

// Elements that a buffer may have, the most first.
std::set<std::uint64_t, std::greater<>> gradients_of(const Options& options) {
  std::set<std::uint64_t, std::greater<>> elements;
  for (const std::vector<LayerOption>& layer : options) {
    for (const LayerOption& option : layer) elements.insert(option.gradient);
  }
  return elements;
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
        limit_(job.options.memory_limit / element_bytes) {}

  std::optional<FoundLayouts> run() {
    if (job_.options.memory_limit == 0) return search(0);
    std::optional<FoundLayouts> best;
    for (const std::uint64_t gradient : gradients_of(options_)) {
      // The buffers of gradients are as large as the largest gradient that a plan has. So the
      // search is repeated with fewer options, those with larger gradients taken out one size after
      // another.
      if (buffers_ * gradient >= limit_) continue;
      remove_larger(options_, gradient);
      std::optional<FoundLayouts> found = search(0);
      // Fewer options make nothing faster.
      if (!found || (best && best->seconds <= found->seconds)) return best;
      if (found->elements <= limit_) return found;
      found = search(limit_ - buffers_ * gradient);
      if (found && (!best || found->seconds < best->seconds)) {
        best = std::move(found);
      }
    }
    return best;
  }

 private:
  // Elements that the search adds up by itself, and the buffers of gradients that all layers share.
  [[nodiscard]] std::optional<FoundLayouts> search(std::uint64_t most_elements) const {
    std::optional<FoundLayouts> found =
        search_layouts(job_, layouts_, relayouts_, options_, most_elements);
    if (found) found->elements += buffers_ * largest_gradient(*found);
    return found;
  }

  const GridJob& job_;
  const std::vector<ValueLayout>& layouts_;
  RelayoutTable relayouts_;
  Options options_;
  std::uint64_t buffers_;
  std::uint64_t limit_;
};

}  // namespace

std::optional<FoundLayouts> search_within_memory(const GridJob& job,
                                                 const std::vector<ValueLayout>& layouts,
                                                 const ComputeCosts& costs) {
  return MemorySearch(job, layouts, costs).run();
}

}  // namespace rondo::train
