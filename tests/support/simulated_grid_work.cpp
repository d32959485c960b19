// The model is lowered as for a run: a graph of layers and changes of layout, with the partition of
// every value over the ranks of a replica. Forward goes through its nodes, backward returns. A
// node exchanges the same data as its kernel, at the same points:
//
// - a change of layout: messages, and the gradients' way back;
// - a convolution or pooling in space: the halo of x before forward; for a convolution that of dy,
//   while it computes the gradients of weights; for pooling others' gradients, behind backward;
// - a convolution by channel: allgathers of x before forward and of dy before backward,
//   reduce-scatters of y and dx behind them;
// - a fully connected layer by outputs: an allgather of y, an allreduce of dx;
// - an average of images in space: an allreduce of the sums.

#include "support/simulated_grid_work.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>

#include "executor/lowering.hpp"
#include "plan/layer_costs.hpp"
#include "plan/step_timeline.hpp"

namespace rondo::test {
namespace {

using namespace train;
using Kind = SimulatedExchange::Kind;
using Exchanges = std::vector<SimulatedExchange>;

std::size_t bytes_of(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

// The exchanges of one node, in the order of a step.
struct NodeExchanges {
  Exchanges before_forward = {};
  Exchanges behind_forward = {};
  Exchanges before_backward = {};
  std::optional<SimulatedExchange> beside_weights = {};
  Exchanges behind_backward = {};
};

// All that ranks of a replica hold as `from` and need as `wanted`.
SimulatedExchange moves(const Partition& from, std::span<const Box> wanted) {
  const auto ranks = static_cast<std::size_t>(from.ranks());
  SimulatedExchange exchange{.groups = {.size = ranks},
                             .bytes = std::vector<std::size_t>(ranks * ranks, 0)};
  for (std::size_t r = 0; r < ranks; ++r) {
    for (const Transfer& sent : redistribution(from, wanted, static_cast<int>(r)).sends) {
      exchange.bytes[r * ranks + static_cast<std::size_t>(sent.peer)] = bytes_of(sent.box.size());
    }
  }
  return exchange;
}

// The same on the way back.
SimulatedExchange returned(const SimulatedExchange& exchange) {
  SimulatedExchange back = exchange;
  const std::size_t ranks = exchange.groups.size;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      back.bytes[r * ranks + peer] = exchange.bytes[peer * ranks + r];
    }
  }
  return back;
}

// An exchange of the channels of `value` among ranks so far apart; all groups have as many.
SimulatedExchange of_channels(Kind kind, const Partition& value, int size, int stride) {
  SimulatedExchange exchange{.kind = kind,
                             .groups = {.size = static_cast<std::size_t>(size),
                                        .stride = static_cast<std::size_t>(stride)}};
  for (int member = 0; member < size; ++member) {
    exchange.bytes.push_back(bytes_of(value.box_of(member * stride).size()));
  }
  return exchange;
}

SimulatedExchange sum_in_replica(const Partition& value) {
  return {.kind = Kind::allreduce,
          .groups = {.size = static_cast<std::size_t>(value.ranks())},
          .bytes = {bytes_of(value.extents().size())}};
}

NodeExchanges of_change(const NodeLayout& layout, bool has_gradient) {
  NodeExchanges exchanges{.before_forward = {moves(layout.x, layout.y.boxes())}};
  if (has_gradient) exchanges.behind_backward = {moves(layout.y, layout.x.boxes())};
  return exchanges;
}

NodeExchanges of_convolution(const LayerType& layer, const NodeLayout& layout, bool has_gradient) {
  NodeExchanges exchanges;
  const auto [channels, filters] = layout.by_channel() ? layout.split.channels : ChannelGrid{};
  if (filters > 1) {
    exchanges.before_forward.push_back(of_channels(Kind::allgather, layout.x, filters, 1));
    if (has_gradient) {
      exchanges.behind_backward.push_back(of_channels(Kind::reduce_scatter, layout.x, filters, 1));
    }
  }
  if (channels > 1) {
    exchanges.behind_forward.push_back(
        of_channels(Kind::reduce_scatter, layout.y, channels, filters));
    exchanges.before_backward.push_back(of_channels(Kind::allgather, layout.y, channels, filters));
  }
  if (!layout.in_space()) return exchanges;
  const ChannelGrid grid{channels, filters};
  const Partition x = layout.by_channel() ? gathered_inputs(layout.x, grid) : layout.x;
  const Partition y =
      layout.by_channel() ? gathered_outputs(layout.x, grid, layout.y.extents()) : layout.y;
  const Windows windows = layer.windows().value();
  exchanges.before_forward.push_back(moves(x, forward_needs(x, y, windows)));
  if (has_gradient) exchanges.beside_weights = moves(y, backward_needs(x, y, windows));
  return exchanges;
}

NodeExchanges of_connected(const NodeLayout& layout, bool has_gradient) {
  if (!layout.by_channel()) return {};
  const int ranks = layout.x.ranks();
  const tensor::Shape& y = layout.y.extents();
  SimulatedExchange gather{.kind = Kind::allgather,
                           .groups = {.size = static_cast<std::size_t>(ranks)}};
  for (int r = 0; r < ranks; ++r) {
    gather.bytes.push_back(bytes_of(y.n * even_range(y.c, ranks, r).size()));
  }
  NodeExchanges exchanges{.behind_forward = {std::move(gather)}};
  if (has_gradient) exchanges.behind_backward = {sum_in_replica(layout.x)};
  return exchanges;
}

// Layers that follow what they read.
NodeExchanges of_follower(const LayerType& layer, const NodeLayout& layout, bool has_gradient) {
  if (!layout.in_space()) return {};
  if (layer.traits().averages_images) return {.behind_forward = {sum_in_replica(layout.y)}};
  const std::optional<Windows> windows = layer.windows();
  if (!windows) return {};
  NodeExchanges exchanges{
      .before_forward = {moves(layout.x, forward_needs(layout.x, layout.y, *windows))}};
  if (has_gradient) exchanges.behind_backward = {returned(exchanges.before_forward[0])};
  return exchanges;
}

std::vector<LayerSplit> splits_of(const FoundLayouts& found) {
  std::vector<LayerSplit> splits;
  for (const ChosenOption& layer : found.layers) splits.push_back(layer.option.split);
  return splits;
}

class Step {
 public:
  Step(const GridJob& job, const FoundLayouts& found)
      : job_(job),
        found_(found),
        lowering_(lower(job.model, splits_of(found), job.grid.pr, job.options.batch / job.grid.pc)),
        reductions_(job.model.layers.size()) {
    for (const GradientBucket& bucket : gradient_buckets(job, found)) {
      reductions_[bucket.layer] = {.kind = Kind::allreduce,
                                   .groups = {static_cast<std::size_t>(bucket.ranks.size),
                                              static_cast<std::size_t>(bucket.ranks.stride)},
                                   .bytes = {static_cast<std::size_t>(bucket.bytes)}};
    }
  }

  std::vector<SimulatedPhase> phases() {
    const std::size_t nodes = lowering_.graph.nodes.size();
    for (std::size_t node = 0; node < nodes; ++node) forward(node);
    for (std::size_t node = nodes; node-- > 0;) backward(node);
    return std::move(phases_);
  }

 private:
  void forward(std::size_t node) {
    const NodeExchanges exchanges = exchanges_of(node);
    add(exchanges.before_forward);
    phases_.push_back({.seconds = seconds_of(node).forward});
    add(exchanges.behind_forward);
  }

  void backward(std::size_t node) {
    const NodeExchanges exchanges = exchanges_of(node);
    add(exchanges.before_backward);
    phases_.push_back({.exchange = exchanges.beside_weights,
                       .beside = true,
                       .seconds = seconds_of(node).backward_weights});
    if (const auto layer = lowering_.graph.nodes[node].layer) {
      phases_.back().reduction = reductions_[*layer];
    }
    phases_.push_back({.seconds = seconds_of(node).backward_data});
    add(exchanges.behind_backward);
  }

  void add(const Exchanges& exchanges) {
    for (const SimulatedExchange& exchange : exchanges) phases_.push_back({.exchange = exchange});
  }

  [[nodiscard]] WorkSeconds seconds_of(std::size_t node) const {
    const auto layer = lowering_.graph.nodes[node].layer;
    return layer ? found_.layers[*layer].option.compute : WorkSeconds{};
  }

  [[nodiscard]] NodeExchanges exchanges_of(std::size_t node) const {
    const GraphNode& place = lowering_.graph.nodes[node];
    const NodeLayout& layout = lowering_.layouts[node];
    const bool has_gradient = train::has_gradient(lowering_.graph, place.inputs[0]);
    if (!place.layer) return of_change(layout, has_gradient);
    const LayerSpec& layer = job_.model.layers[*place.layer];
    if (is_convolution(layer)) return of_convolution(*layer.kind, layout, has_gradient);
    if (is_fully_connected(layer)) return of_connected(layout, has_gradient);
    return of_follower(*layer.kind, layout, has_gradient);
  }

  const GridJob& job_;
  const FoundLayouts& found_;
  Lowering lowering_;
  std::vector<std::optional<SimulatedExchange>> reductions_;  // by layer
  std::vector<SimulatedPhase> phases_;
};

// The bytes that all ranks send, without those of gradients.
std::uint64_t sent_bytes(const std::vector<SimulatedPhase>& phases, std::size_t ranks) {
  std::uint64_t bytes = 0;
  for (const SimulatedPhase& phase : phases) {
    if (!phase.exchange) continue;
    bytes += phase.exchange->sent_bytes() * (ranks / phase.exchange->groups.size);
  }
  return bytes;
}

}  // namespace

FoundLayouts layouts_with(const GridJob& job, const LayerSplit& split, const ComputeCosts& costs) {
  const std::vector<ValueLayout> layouts = possible_layouts(job);
  std::vector<std::vector<LayerOption>> options;
  for (std::size_t i = 0; i < job.model.layers.size(); ++i) {
    const JobLayer layer = layer_of(job, i);
    options.push_back(options_of(job, layer, layouts, costs));
    LayerSplit wanted = split;
    if (layer.is_fully_connected()) wanted.channels = {1, job.grid.pr};
    const auto differs = [&](const LayerOption& option) { return option.split != wanted; };
    std::vector<LayerOption> alike = options.back();
    std::erase_if(alike, differs);
    if (layer.has_split() && !alike.empty()) options.back() = std::move(alike);
  }
  std::optional<FoundLayouts> found =
      search_layouts(job, layouts, RelayoutTable(job, layouts), options, 0);
  if (!found) throw std::invalid_argument("the planner knows no such splits of " + job.model.name);
  return std::move(*found);
}

std::vector<SimulatedPhase> phases_of(const GridJob& job, const FoundLayouts& found) {
  std::vector<SimulatedPhase> phases = Step(job, found).phases();
  const std::vector<std::uint64_t> table = activation_bytes(
      job.model, splits_of(found), job.grid, job.options.batch, tensor::DataType::f32);
  const std::uint64_t expected = std::accumulate(table.begin(), table.end(), std::uint64_t{0});
  const std::uint64_t sent = sent_bytes(phases, static_cast<std::size_t>(job.grid.ranks()));
  if (sent != expected) {
    throw std::logic_error(job.model.name + ": the simulated exchanges send " +
                           std::to_string(sent) + " bytes, the trainer " +
                           std::to_string(expected));
  }
  return phases;
}

}  // namespace rondo::test
