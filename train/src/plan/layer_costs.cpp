// The costs of one layer that is split in one way: the work of the rank that has most, the exchange
// of activations and halos, the reduction of gradients. The search asks for each layer, each split
// and each layout, so that everything here is arithmetic on extents; nothing is lowered or
// simulated.

#include "plan/layer_costs.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <rondo/sync/scheme_memory.hpp>
#include <rondo/train/halo.hpp>

namespace rondo::train {
namespace {

// Inputs that make so many outputs where both ends are padded.
std::int64_t inputs_for(std::int64_t outputs, const Window& window) {
  const std::int64_t padding = window.before + window.after;
  return std::max<std::int64_t>((outputs - 1) * window.stride + window.kernel - padding, 1);
}

void keep_part_of_image(const JobLayer& layer, const LayerSplit& split, tensor::Shape& input) {
  const std::optional<Windows> windows = windows_if_any(layer);
  if (!windows) {
    input.h = largest_part(layer.x.h, split.h);
    input.w = largest_part(layer.x.w, split.w);
    return;
  }
  // A part along a dimension reads its halo as well: the kernel computes on what it reads.
  if (split.h > 1) input.h = inputs_for(largest_part(layer.y.h, split.h), windows->h);
  if (split.w > 1) input.w = inputs_for(largest_part(layer.y.w, split.w), windows->w);
}

}  // namespace

LocalWork local_work(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  LocalWork work{.layer = layer.spec.name,
                 .kind = layer.spec.kind,
                 .input = layer.x,
                 .input_gradient = layer.input_gradient};
  const bool by_sample = split.kind == SplitKind::sample;
  work.input.n = largest_part(layer.x.n, by_sample ? job.grid.ranks() : job.grid.pc);
  if (cuts_space(split.kind)) keep_part_of_image(layer, split, work.input);
  if (!cuts_channels(split.kind)) return work;
  const std::optional<LayerKind> part =
      layer.spec.kind->part_by_channel(split.channels, weight_parts(job, split), work.input);
  if (part) work.kind = *part;
  return work;
}

namespace {

// A dimension that is cut into parts.
struct Cut {
  Window window = {};
  std::int64_t x = 0;
  std::int64_t y = 0;
  int parts = 1;

  [[nodiscard]] Range inputs(int part) const { return even_range(x, parts, part); }
  [[nodiscard]] Range outputs(int part) const { return even_range(y, parts, part); }
  [[nodiscard]] Range read_by(int part) const {
    return inputs_read(window, outputs(part), x).range;
  }
};

// The data that a part is sent: x before forward; in backward dy, or its dx as others computed it.
enum class Sent { x, dy, dx };

// How many indices `part` is sent by `other`; or has, where they are the same.
std::int64_t sent_by(const Cut& cut, int other, int part, Sent sent) {
  switch (sent) {
    case Sent::x:
      return intersection(cut.inputs(other), cut.read_by(part)).size();
    case Sent::dy: {
      const Range fed = outputs_fed(cut.window, cut.inputs(part), cut.y).range;
      return intersection(cut.outputs(other), fed).size();
    }
    case Sent::dx:
      break;
  }
  return intersection(cut.inputs(part), cut.read_by(other)).size();
}

struct Source {
  int part = 0;
  std::int64_t size = 0;
};

// By part: itself, then those that send it something, which lie side by side.
std::vector<std::vector<Source>> sources_of(const Cut& cut, Sent sent) {
  std::vector<std::vector<Source>> sources;
  for (int part = 0; part < cut.parts; ++part) {
    std::vector<Source> of_part = {{part, sent_by(cut, part, part, sent)}};
    for (const int step : {-1, 1}) {
      for (int other = part + step; other >= 0 && other < cut.parts; other += step) {
        const std::int64_t size = sent_by(cut, other, part, sent);
        if (size == 0) break;
        of_part.push_back({other, size});
      }
    }
    sources.push_back(std::move(of_part));
  }
  return sources;
}

// By rank, of so many replicas. The ranks of a tile are side by side, and each exchanges with those
// at its place in other tiles. A rank in the middle has eight neighbours, the corners among them.
std::vector<Received> received_halos(const GridJob& job,
                                     const std::vector<std::vector<Source>>& rows,
                                     const std::vector<std::vector<Source>>& columns,
                                     std::int64_t depth, int replicas) {
  const auto tiles = static_cast<int>(rows.size() * columns.size());
  const int ranks_of_tile = job.grid.pr / tiles;
  std::vector<Received> received;
  for (int rank = 0; rank < replicas * job.grid.pr; ++rank) {
    const int position = rank % job.grid.pr;
    const int own = position / ranks_of_tile;
    Received& of_rank = received.emplace_back();
    for (const Source& h : rows[static_cast<std::size_t>(own) / columns.size()]) {
      for (const Source& w : columns[static_cast<std::size_t>(own) % columns.size()]) {
        const int tile = h.part * static_cast<int>(columns.size()) + w.part;
        if (tile == own) continue;
        const int other = rank + (tile - own) * ranks_of_tile;
        const bool near = other / job.options.ranks_per_node == rank / job.options.ranks_per_node;
        Messages& messages = near ? of_rank.near : of_rank.far;
        messages.count += 1;
        messages.elements += depth * h.size * w.size;
      }
    }
  }
  return received;
}

// The number of replicas, from the first on, whose halos are to be looked at. Replicas that fill
// nodes, or parts of one, exchange alike; others lie over the borders of nodes in several ways,
// until one begins with a node again.
int different_replicas(const GridJob& job) {
  const int on_node = job.options.ranks_per_node;
  if (on_node % job.grid.pr == 0 || job.grid.pr % on_node == 0) return 1;
  return std::min(job.grid.pc, on_node / std::gcd(on_node, job.grid.pr));
}

// The channels of x and y whose halo a rank wants: a convolution wants those that it has gathered,
// a layer that follows its own.
ChannelGrid parts_with_halo(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (layer.is_convolution()) return split.channels;
  const int parts = weight_parts(job, split);
  return {.channels = parts, .filters = parts};
}

LayerExchanges window_exchanges(const GridJob& job, const JobLayer& layer, const LayerSplit& split,
                                const Windows& windows) {
  const std::int64_t samples = (layer.x.n + job.grid.pc - 1) / job.grid.pc;
  const ChannelGrid parts = parts_with_halo(job, layer, split);
  const std::int64_t channels = largest_part(layer.x.c, parts.channels);
  const std::int64_t filters = largest_part(layer.y.c, parts.filters);
  const auto cost = [&](Sent sent, std::int64_t depth) {
    const auto rows = sources_of({windows.h, layer.x.h, layer.y.h, split.h}, sent);
    const auto columns = sources_of({windows.w, layer.x.w, layer.y.w, split.w}, sent);
    return received_cost(
        received_halos(job, rows, columns, samples * depth, different_replicas(job)), job.options);
  };
  LayerExchanges exchange{.forward = cost(Sent::x, channels)};
  if (!layer.input_gradient) return exchange;
  if (layer.spec.kind->traits().returns_halo) {
    exchange.dx = cost(Sent::dx, channels);
  } else {
    exchange.halo_dy = cost(Sent::dy, filters);
  }
  return exchange;
}

// Exchanges in a layer whose images are split, without those of ranks with other channels.
LayerExchanges in_space_exchanges(const GridJob& job, const JobLayer& layer,
                                  const LayerSplit& split) {
  if (layer.averages_images()) {
    const double elements = static_cast<double>(layer.y.size()) / job.grid.pc;
    return {.forward = allreduce_cost(elements, job.replica(), job.options)};
  }
  const std::optional<Windows> windows = windows_if_any(layer);
  return windows ? window_exchanges(job, layer, split, *windows) : LayerExchanges{};
}

bool is_thick_enough(std::int64_t x, std::int64_t y, int parts, std::int64_t halo) {
  return parts == 1 || std::min(x, y) / parts >= std::max<std::int64_t>(halo, 1);
}

// Has every rank a part of the images that it reads and writes, at least as thick as the halo?
bool is_thick_enough(const JobLayer& layer, const LayerSplit& split) {
  if (layer.averages_images()) return layer.x.h >= split.h && layer.x.w >= split.w;
  const std::optional<Windows> windows = windows_if_any(layer);
  const Windows w = windows.value_or(Windows{});
  return is_thick_enough(layer.x.h, layer.y.h, split.h, w.h.kernel / 2) &&
         is_thick_enough(layer.x.w, layer.y.w, split.w, w.w.kernel / 2);
}

// Elements of a replica, on average.
double elements_of(const GridJob& job, const tensor::Shape& value) {
  return static_cast<double>(value.size()) / job.grid.pc;
}

// Exchanges for a replica's images, or for one tile of them.
LayerExchanges by_channel_exchanges(const GridJob& job, const JobLayer& layer,
                                    const LayerSplit& split) {
  const ChannelGrid channels = split.channels;
  const double tiles = split.h * split.w;
  // Ranks that share a block of channels are adjacent, where blocks are in order.
  const ProcessGroup gathering{.size = channels.filters, .stride = 1};
  const ProcessGroup scattering{.size = channels.channels, .stride = channels.filters};
  const double x = elements_of(job, layer.x) / tiles / channels.channels;
  const double y = elements_of(job, layer.y) / tiles / channels.filters;
  // What is gathered has the type of activations; what is summed and scattered is fp32.
  LayerExchanges exchange{.forward = gathering_cost(job.in_f32(x), gathering, job.options) +
                                     scattering_cost(y, scattering, job.options),
                          .dy = gathering_cost(job.in_f32(y), scattering, job.options)};
  if (layer.input_gradient) exchange.dx = scattering_cost(x, gathering, job.options);
  return exchange;
}

LayerExchanges by_output_exchanges(const GridJob& job, const JobLayer& layer) {
  LayerExchanges exchange{
      .forward = gathering_cost(job.in_f32(elements_of(job, layer.y)), job.replica(), job.options)};
  if (layer.input_gradient) {
    exchange.dx = allreduce_cost(elements_of(job, layer.x), job.replica(), job.options);
  }
  return exchange;
}

// The ranks of a replica whose statistics of batch norm are added up: they have other samples or
// pixels of the same channels.
ProcessGroup sharing_in_replica(const GridJob& job, const LayerSplit& split) {
  if (job.options.batch_norm == BatchNormScope::rank) return {};
  const ProcessGroup all = reduced_over(job, split);
  return {.size = all.size / job.grid.pc, .stride = all.stride};
}

// One allreduce after the other: within the replica, then over the replicas.
MessageCost sharing_cost(const GridJob& job, const LayerSplit& split, double elements) {
  const bool all = job.options.batch_norm == BatchNormScope::all;
  return allreduce_cost(elements, sharing_in_replica(job, split), job.options) +
         allreduce_cost(elements, all ? job.across() : ProcessGroup{}, job.options);
}

// In forward two sums for each channel and the count, in backward two sums, all in double. Nothing
// hides them.
LayerExchanges statistics_exchanges(const GridJob& job, const JobLayer& layer,
                                    const LayerSplit& split) {
  constexpr double words = 2.0;  // of a double
  const double channels = static_cast<double>(layer.y.c) / weight_parts(job, split);
  return {.forward = sharing_cost(job, split, words * (2 * channels + 1)),
          .dx = sharing_cost(job, split, words * 2 * channels)};
}

}  // namespace

LayerExchanges exchanges_of(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (layer.spec.kind->traits().batch_statistics) return statistics_exchanges(job, layer, split);
  const bool by_output = layer.is_fully_connected() && cuts_channels(split.kind);
  if (by_output) return by_output_exchanges(job, layer);
  LayerExchanges exchange;
  if (cuts_space(split.kind)) exchange = in_space_exchanges(job, layer, split);
  if (cuts_channels(split.kind) && layer.is_convolution()) {
    const LayerExchanges by_channel = by_channel_exchanges(job, layer, split);
    exchange.forward += by_channel.forward;
    exchange.dy = by_channel.dy;
    exchange.dx = by_channel.dx;
  }
  return exchange;
}

// The ranks that reduce the gradients of weights: all ranks where all hold the same weights and
// other samples or pixels; across the replicas where the ranks of one hold slices, or the same
// samples; the holders of a slice in all tiles of all replicas where both is so.
ProcessGroup reduced_over(const GridJob& job, const LayerSplit& split) {
  if (split.kind == SplitKind::replica) return job.across();
  const int slices = weight_parts(job, split);
  return {.size = job.grid.ranks() / slices, .stride = slices};
}

double weights_of_rank(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  return static_cast<double>(weights_of(layer)) / weight_parts(job, split);
}

double reduced_elements(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  return in_f32(weights_of_rank(job, layer, split), job.options.gradient_type);
}

MessageCost reduction_cost(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (!layer.has_split()) return {};
  return allreduce_cost(reduced_elements(job, layer, split), reduced_over(job, split), job.options);
}

int weight_parts(const GridJob& job, const LayerSplit& split) {
  return channel_parts({.kind = split.kind, .h = split.h, .w = split.w}, job.grid);
}

namespace {

std::vector<int> divisors_of(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// How images are cut into tiles if their channels are cut, too: into as few as the grid has, and
// between rows, because a halo of rows is dense memory. The search takes about three times as long
// with this layout, and up to a hundred times with all such ones. There are no bf16 kernels for it.
std::optional<ValueLayout> layout_of_tiles(const GridJob& job) {
  const std::vector<int> divisors = divisors_of(job.grid.pr);
  const bool has_both = divisors.size() > 2;
  if (!has_both || job.options.type != tensor::DataType::f32) return std::nullopt;
  return ValueLayout{.kind = SplitKind::space_and_channel, .h = divisors[1]};
}

// All splits of a convolution or fully connected layer that the grid has.
std::vector<LayerSplit> splits_of(const GridJob& job, const JobLayer& layer) {
  std::vector<LayerSplit> splits;
  const int pr = job.grid.pr;
  if (job.grid.ranks() <= job.options.batch) splits.push_back({.kind = SplitKind::sample});
  if (pr == 1) return splits;
  if (job.options.replicas) splits.push_back({.kind = SplitKind::replica});
  const bool stays_whole = job.options.whole_layers || layer.spec.kind->traits().whole_channels;
  if (layer.is_fully_connected()) {
    if (job.options.whole_layers) return splits;
    splits.push_back({.kind = SplitKind::channel, .channels = {1, pr}});
    return splits;
  }
  for (const int d : divisors_of(pr)) {
    splits.push_back({.kind = SplitKind::space, .h = d, .w = pr / d});
    if (stays_whole) continue;
    splits.push_back({.kind = SplitKind::channel, .channels = {d, pr / d}});
  }
  if (stays_whole) return splits;
  if (const std::optional<ValueLayout> tiles = layout_of_tiles(job)) {
    // Stationary-W would turn the blocks, which makes more layouts.
    const int parts = channel_parts(*tiles, job.grid);
    splits.push_back({tiles->kind, tiles->h, tiles->w, {.channels = parts}});
    splits.push_back({tiles->kind, tiles->h, tiles->w, {.filters = parts}});
  }
  return splits;
}

bool are_enough(std::int64_t channels, int parts) {
  return parts == 1 || channels / parts >= least_channels;
}

// Parts of an image have less padding than a kernel.
bool is_overpadded(const JobLayer& layer) {
  if (!layer.is_convolution()) return false;
  const Windows windows = windows_if_any(layer).value_or(Windows{});
  return windows.h.before >= windows.h.kernel;
}

// A layer that follows is cut into as many parts as ranks, whatever remains.
bool is_sensible(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  const bool in_space = cuts_space(split.kind);
  if (in_space && (is_overpadded(layer) || !is_thick_enough(layer, split))) return false;
  if (!cuts_channels(split.kind)) return true;
  if (layer.is_fully_connected()) return are_enough(layer.y.c, job.grid.pr);
  if (std::min(layer.x.c, layer.y.c) < weight_parts(job, split)) return false;  // none for some
  if (!layer.is_convolution()) return true;
  return are_enough(layer.x.c, split.channels.channels) &&
         are_enough(layer.y.c, split.channels.filters);
}

// The two buffers of a convolution by channel: its gathered input, and its partial outputs.
std::int64_t gathered_elements(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (!cuts_channels(split.kind) || !layer.is_convolution()) return 0;
  const std::int64_t samples = (layer.x.n + job.grid.pc - 1) / job.grid.pc;
  const std::int64_t tiles = std::int64_t{split.h} * split.w;
  const auto [channels, filters] = split.channels;
  std::int64_t elements = 0;
  if (filters > 1) elements += samples * layer.x.image() / tiles / channels;
  if (channels > 1) elements += samples * layer.y.image() / tiles / filters;
  return elements;
}

// The optimizer's state for so many parameters of a layer; a rank's share of it if it is divided.
std::uint64_t optimizer_state(const GridJob& job, const LayerSplit& split,
                              std::uint64_t parameters) {
  const auto whole = parameters * static_cast<std::uint64_t>(job.options.optimizer_elements);
  if (!job.options.divides_optimizer) return whole;
  return sync::sharded_state(
      {.layers = {{parameters, reduced_over(job, split).size}}, .optimizer_state = whole});
}

std::uint64_t elements_of(const GridJob& job, const JobLayer& layer, const LayerSplit& split,
                          std::int64_t all_parameters, const ValueLayout& y) {
  const auto parameters =
      static_cast<std::uint64_t>(largest_part(all_parameters, weight_parts(job, split)));
  const auto gathered = static_cast<std::uint64_t>(gathered_elements(job, layer, split));
  // Parameters, gradients and the copy for evaluation; weights and their gradients as kernels have
  // them. With fewer the search would pass over what fits, because only too much is corrected.
  constexpr std::uint64_t copies = 5;
  return copies * parameters + optimizer_state(job, split, parameters) + gathered +
         held_elements(job, y, layer.y);
}

// The larger gradient: of what the layer writes, or of what it reads, which may be a copy.
std::uint64_t gradient_of(const GridJob& job, const JobLayer& layer, const ValueLayout& x,
                          const ValueLayout& y) {
  const std::uint64_t of_y = held_elements(job, y, layer.y);
  return layer.input_gradient ? std::max(of_y, held_elements(job, x, layer.x)) : of_y;
}

// The number of a layout, if it is one that values can have.
std::optional<int> number_of(const ValueLayout& layout, const std::vector<ValueLayout>& layouts) {
  const auto found = std::ranges::find(layouts, layout);
  if (found == layouts.end()) return std::nullopt;
  return static_cast<int>(found - layouts.begin());
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
    LayerOption option{
        .split = split,
        .compute = job_.options.slowdown * costs_.seconds(local_work(job_, layer_, split)),
        .exchange = exchanges_of(job_, layer_, split),
        .reduction = reduction_cost(job_, layer_, split).seconds};
    const LayerExchanges& exchange = option.exchange;
    if (job_.counts_ports) {
      option.port = exchange.dy.busy + exchange.halo_dy.busy + exchange.dx.busy;
    }
    for (const int x : inputs) {
      const ValueLayout& lies = layouts_[static_cast<std::size_t>(x)];
      const ValueLayout y = layout_written_by(layer_.spec, split, lies);
      const std::optional<int> number = number_of(y, layouts_);
      if (!number) continue;
      option.x = x;
      option.y = *number;
      option.elements = elements_of(job_, layer_, split, parameters_, y);
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

// The split of a layer that follows a value which lies so.
LayerSplit split_like(const ValueLayout& layout) {
  return {.kind = layout.kind, .h = layout.h, .w = layout.w};
}

// The layouts that a split layer reads as they are: of channels, blocks in any order.
std::vector<int> inputs_of(const JobLayer& layer, const LayerSplit& split,
                           const std::vector<ValueLayout>& layouts) {
  std::vector<int> inputs;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (layout_read_by(layer.spec, split, layouts[i]) != layouts[i]) continue;
    inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

}  // namespace

std::optional<int> closing_layout(int logits, const std::vector<ValueLayout>& layouts) {
  const SplitKind kind = layouts[static_cast<std::size_t>(logits)].kind;
  if (kind == SplitKind::sample || kind == SplitKind::replica) return std::nullopt;
  return number_of({.kind = SplitKind::replica}, layouts);
}

// Every layout that some split of the grid reads or writes; their order gives them their numbers.
std::vector<ValueLayout> possible_layouts(const GridJob& job) {
  std::vector<ValueLayout> layouts;
  if (job.grid.ranks() <= job.options.batch) layouts.push_back({.kind = SplitKind::sample});
  if (job.grid.pr == 1) return layouts;
  layouts.push_back({.kind = SplitKind::replica});
  for (const int d : divisors_of(job.grid.pr)) {
    layouts.push_back({.kind = SplitKind::space, .h = d, .w = job.grid.pr / d});
    const ValueLayout channels = turned({.kind = SplitKind::channel}, {d, job.grid.pr / d});
    if (!number_of(channels, layouts)) layouts.push_back(channels);
  }
  if (const std::optional<ValueLayout> tiles = layout_of_tiles(job)) layouts.push_back(*tiles);
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
    for (const int i : inputs_of(layer, {}, layouts)) {
      list.add(split_like(layouts[static_cast<std::size_t>(i)]), {i});
    }
  }
  return list.take();
}

}  // namespace rondo::train
