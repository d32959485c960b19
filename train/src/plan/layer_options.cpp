#include "plan/layer_options.hpp"

#include <algorithm>
#include <optional>

#include "plan/layer_costs.hpp"

namespace rondo::train {
namespace {

std::vector<int> divisors_of(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// All splits of a convolution or fully connected layer that the grid has.
std::vector<LayerSplit> splits_of(const GridJob& job, const JobLayer& layer) {
  std::vector<LayerSplit> splits;
  const int pr = job.grid.pr;
  if (job.grid.ranks() <= job.options.batch) splits.push_back({.kind = SplitKind::sample});
  if (pr == 1) return splits;
  splits.push_back({.kind = SplitKind::group});
  if (layer.is_fully_connected()) {
    splits.push_back({.kind = SplitKind::channel, .channels = {1, pr}});
    return splits;
  }
  for (const int d : divisors_of(pr)) {
    splits.push_back({.kind = SplitKind::space, .h = d, .w = pr / d});
    splits.push_back({.kind = SplitKind::channel, .channels = {d, pr / d}});
  }
  return splits;
}

bool are_enough(std::int64_t channels, int parts) {
  return parts == 1 || channels / parts >= least_channels;
}

// Parts of a picture have less padding than a kernel.
bool is_overpadded(const JobLayer& layer) {
  if (!layer.is_convolution()) return false;
  const Windows windows = windows_if_any(layer).value_or(Windows{});
  return windows.h.before >= windows.h.kernel;
}

// A layer that follows is cut into as many parts as ranks, whatever remains.
bool is_sensible(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (split.kind == SplitKind::space) return !is_overpadded(layer) && is_thick_enough(layer, split);
  if (split.kind != SplitKind::channel) return true;
  if (layer.is_fully_connected()) return are_enough(layer.y.c, job.grid.pr);
  if (std::min(layer.x.c, layer.y.c) < job.grid.pr) return false;  // some would hold nothing
  if (!layer.is_convolution()) return true;
  return are_enough(layer.x.c, split.channels.channels) &&
         are_enough(layer.y.c, split.channels.filters);
}

std::uint64_t words_of(const GridJob& job, const JobLayer& layer, const LayerSplit& split,
                       std::int64_t all_parameters, const ValueLayout& y) {
  const std::int64_t parameters = largest_part(all_parameters, weight_parts(job, split));
  const std::int64_t words =
      (2 + job.options.optimizer_words) * parameters + gathered_words(job, layer, split);
  return static_cast<std::uint64_t>(words) + held_words(job, y, layer.y);
}

// Of the larger gradient: of what the layer writes, or of what it reads, which may be a copy.
std::uint64_t gradient_of(const GridJob& job, const JobLayer& layer, const ValueLayout& x,
                          const ValueLayout& y) {
  const std::uint64_t of_y = held_words(job, y, layer.y);
  return layer.input_gradient ? std::max(of_y, held_words(job, x, layer.x)) : of_y;
}

// The number of a layout, if it is one that values can have.
std::optional<int> number_of(const ValueLayout& layout, const std::vector<ValueLayout>& layouts) {
  const auto found = std::ranges::find(layouts, layout);
  if (found == layouts.end()) return std::nullopt;
  return static_cast<int>(found - layouts.begin());
}

// How y lies where the layer reads `x`.
ValueLayout written(const JobLayer& layer, const LayerSplit& split, const ValueLayout& x) {
  if (layer.averages_images() && x.kind == SplitKind::space) {
    return {.kind = SplitKind::group};  // its sums are of the whole picture
  }
  if (split.kind != SplitKind::channel || !layer.is_convolution()) return x;
  return turned(x, split.channels);
}

class OptionList {
 public:
  OptionList(const GridJob& job, const JobLayer& layer, const std::vector<ValueLayout>& layouts,
             const ComputeCosts& costs)
      : job_(job),
        layer_(layer),
        parameters_(parameters_of(layer)),
        layouts_(layouts),
        costs_(costs) {}

  // Adds the layer as split, for each of these layouts of x from which y gets a layout.
  void add(const LayerSplit& split, const std::vector<int>& inputs) {
    if (!is_sensible(job_, layer_, split)) return;
    LayerOption option{.split = split,
                       .compute = costs_.seconds(local_work(job_, layer_, split)).total(),
                       .exchange = exchange_seconds(job_, layer_, split),
                       .reduction = reduction_seconds(job_, layer_, split)};
    for (const int x : inputs) {
      const ValueLayout& lies = layouts_[static_cast<std::size_t>(x)];
      const ValueLayout y = written(layer_, split, lies);
      const std::optional<int> number = number_of(y, layouts_);
      if (!number) continue;
      option.x = x;
      option.y = *number;
      option.words = words_of(job_, layer_, split, parameters_, y);
      option.gradient = gradient_of(job_, layer_, lies, y);
      options_.push_back(option);
    }
  }

  [[nodiscard]] std::vector<LayerOption> take() { return std::move(options_); }

 private:
  const GridJob& job_;
  const JobLayer& layer_;
  std::int64_t parameters_;
  const std::vector<ValueLayout>& layouts_;
  const ComputeCosts& costs_;
  std::vector<LayerOption> options_;
};

// The layouts that a split layer reads: of channels, blocks in any order.
std::vector<int> inputs_of(const JobLayer& layer, const LayerSplit& split,
                           const std::vector<ValueLayout>& layouts) {
  const ValueLayout read = layout_read_by(layer, split);
  std::vector<int> inputs;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const bool channels = read.kind == SplitKind::channel && layouts[i].kind == read.kind;
    if (channels || layouts[i] == read) inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

LayerSplit split_like(const ValueLayout& layout) {
  return {.kind = layout.kind, .h = layout.h, .w = layout.w};
}

}  // namespace

std::optional<int> closing_layout(int logits, const std::vector<ValueLayout>& layouts) {
  const SplitKind kind = layouts[static_cast<std::size_t>(logits)].kind;
  if (kind == SplitKind::sample || kind == SplitKind::group) return std::nullopt;
  return number_of({.kind = SplitKind::group}, layouts);
}

std::vector<ValueLayout> possible_layouts(const GridJob& job) {
  std::vector<ValueLayout> layouts;
  if (job.grid.ranks() <= job.options.batch) layouts.push_back({.kind = SplitKind::sample});
  if (job.grid.pr == 1) return layouts;
  layouts.push_back({.kind = SplitKind::group});
  for (const int d : divisors_of(job.grid.pr)) {
    layouts.push_back({.kind = SplitKind::space, .h = d, .w = job.grid.pr / d});
    const ValueLayout channels = turned({.kind = SplitKind::channel}, {d, job.grid.pr / d});
    if (!number_of(channels, layouts)) layouts.push_back(channels);
  }
  return layouts;
}

std::vector<LayerOption> options_of(const GridJob& job, const JobLayer& layer,
                                    const std::vector<ValueLayout>& layouts,
                                    const ComputeCosts& costs) {
  OptionList list(job, layer, layouts, costs);
  if (layer.has_split()) {
    for (const LayerSplit& split : splits_of(job, layer)) {
      list.add(split, inputs_of(layer, split, layouts));
    }
  } else {
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      list.add(split_like(layouts[i]), {static_cast<int>(i)});
    }
  }
  return list.take();
}

}  // namespace rondo::train
