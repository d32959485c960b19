// The closed forms of plan.hpp (Gholami et al., SPAA 2018): what each strategy communicates for
// each layer with weights, which grids are refused and why, and the order in which grids are shown.
//
// First come the costs of a message and of a collective: alpha seconds for each round of messages,
// and the bytes that a rank sends divided by the bandwidth. Ranks that share a node use another
// link than those that do not; a collective of both is one within nodes, then one between them on
// what is left.

#include "plan/closed_forms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <rondo/train/plan.hpp>
#include <rondo/transport/allreduce_paths.hpp>

#include "layers/layer_type.hpp"
#include "plan/layer_costs.hpp"
#include "plan/layout_search.hpp"

namespace rondo::train {
namespace {

using transport::AllreduceAlgorithm;

double message_seconds(double elements, const LinkCost& link) {
  return link.alpha_seconds + elements * element_bytes / link.bandwidth;
}

// ceil(log2 ranks)
int rounds_of(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1U));
}

// Of an allgather or a reduce-scatter: ceil(log2 p) rounds, and (p - 1) / p of the elements. An
// allreduce is both, so callers count it twice.
double flat_seconds(double elements, int ranks, const LinkCost& link) {
  const double moved = elements * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return link.alpha_seconds * rounds_of(ranks) + moved * element_bytes / link.bandwidth;
}

// How many ranks of the process group share a node. It has every stride-th rank. Where the ranks of
// a node are no multiple of the stride, its members lie on different nodes.
int ranks_on_node(ProcessGroup group, int ranks_per_node) {
  if (ranks_per_node % group.stride != 0) return 1;
  return std::gcd(group.size, ranks_per_node / group.stride);
}

// The link to other nodes of a rank that shares the port with so many, itself among them.
LinkCost fabric_of_one_of(int senders, const PlanOptions& options) {
  LinkCost link = options.fabric;
  if (options.port_bandwidth > 0.0) {
    link.bandwidth = std::min(link.bandwidth, options.port_bandwidth / senders);
  }
  return link;
}

bool is_on_one_node(ProcessGroup group, const PlanOptions& options) {
  return ranks_on_node(group, options.ranks_per_node) == group.size;
}

LinkCost link_within(ProcessGroup group, const PlanOptions& options) {
  return is_on_one_node(group, options) ? options.node
                                        : fabric_of_one_of(options.ranks_per_node, options);
}

}  // namespace

PlanOptions only_bytes_between_nodes(const PlanOptions& options) {
  PlanOptions bytes = options;
  bytes.node = {.alpha_seconds = 0.0, .bandwidth = std::numeric_limits<double>::infinity()};
  bytes.fabric.alpha_seconds = 0.0;
  return bytes;
}

double port_bandwidth(const PlanOptions& options) {
  return fabric_of_one_of(options.ranks_per_node, options).bandwidth;
}

double collective_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return flat_seconds(elements, local, options.node) +
         flat_seconds(elements / local, group.size / local,
                      fabric_of_one_of(options.ranks_per_node, options));
}

namespace {

// Inside a node ranks load from and store to each other's memory when all of them are there.
// `copied` elements are loaded and stored once: the bandwidth inside a node is that of copies.
double node_seconds(double copied, int ranks, const LinkCost& link) {
  return ranks == 1 ? 0.0 : link.alpha_seconds + copied * element_bytes / link.bandwidth;
}

double copied_by_allgather(double elements, int ranks) {
  return elements * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

// A rank loads its share of all inputs, and stores it once.
double copied_by_reduce_scatter(double elements, int ranks) {
  return elements * (1.0 + 1.0 / static_cast<double>(ranks)) / 2.0;
}

// On one node a rank loads its share of all inputs and stores it into all outputs. Where nodes
// exchange shares between the two, it stores it once, and then copies all shares.
double allreduce_inside(double elements, int ranks, bool on_one_node, const LinkCost& link) {
  if (on_one_node) return node_seconds(elements, ranks, link) + node_seconds(0.0, ranks, link);
  return node_seconds(copied_by_reduce_scatter(elements, ranks), ranks, link) +
         node_seconds(elements, ranks, link);
}

// Messages to the neighbour, one behind the other, of ranks of which so many share a node's port:
// while one waits for its message, the others send.
double ring_seconds(double elements, int ranks, int senders, const PlanOptions& options) {
  const double bytes = elements * element_bytes / ranks;
  const double alone = options.fabric.alpha_seconds + bytes / options.fabric.bandwidth;
  return (ranks - 1) * std::max(alone, bytes / fabric_of_one_of(senders, options).bandwidth);
}

// Bytes that are added while nothing is sent take so much of the time in which they are sent.
constexpr double adding = 0.25;

// Of doubling and halving: log2 rounds among the largest power of two of ranks, and two messages of
// all elements before and after them where the ranks are more. AlgorithmTable::for_ranks() of
// transport counts alike.
struct Folded {
  double positions = 1.0;
  double rounds = 0.0;
  double messages = 0.0;
};

Folded fold(int ranks) {
  const auto count = static_cast<unsigned>(ranks);
  return {.positions = static_cast<double>(std::bit_floor(count)),
          .rounds = static_cast<double>(std::bit_width(count) - 1),
          .messages = std::has_single_bit(count) ? 0.0 : 2.0};
}

// All elements in every round, which are added before the next one begins.
double doubling_seconds(double elements, int ranks, const LinkCost& link) {
  const Folded folded = fold(ranks);
  return (folded.rounds + folded.messages) *
         (link.alpha_seconds + (1.0 + adding) * elements * element_bytes / link.bandwidth);
}

// How many times all elements halving sends, and how many times it adds them: half of them, a
// quarter and so on, and the same back, which are not added.
struct HalvingWork {
  double sent = 0.0;
  double added = 0.0;
};

HalvingWork halving_work(int ranks) {
  const Folded folded = fold(ranks);
  const double halves = 1.0 - 1.0 / folded.positions;
  return {.sent = 2.0 * halves + folded.messages, .added = halves + folded.messages};
}

double halving_seconds(double elements, int ranks, const LinkCost& link) {
  const Folded folded = fold(ranks);
  const auto [sent, added] = halving_work(ranks);
  return (2.0 * folded.rounds + folded.messages) * link.alpha_seconds +
         (sent + adding * added) * elements * element_bytes / link.bandwidth;
}

// Of one block nothing hides, and each block passes one stage after the other.
double overlapped(double inside, double between, std::size_t blocks) {
  const double hidden = std::min(inside, between) * (1.0 - 1.0 / static_cast<double>(blocks));
  return inside + between - hidden;
}

}  // namespace

double gathering_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return node_seconds(copied_by_allgather(elements, local), local, options.node) +
         ring_seconds(elements / local, group.size / local, options.ranks_per_node, options);
}

double scattering_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return node_seconds(copied_by_reduce_scatter(elements, local), local, options.node) +
         ring_seconds(elements / local, group.size / local, options.ranks_per_node, options);
}

namespace {

// How an allreduce goes: among so many ranks on each of so many nodes.
struct AllreduceWay {
  int local = 1;
  int nodes = 1;
  AllreduceAlgorithm algorithm = AllreduceAlgorithm::ring;
};

AllreduceWay allreduce_way(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  const int nodes = group.size / local;
  const auto bytes = static_cast<std::size_t>(elements * element_bytes);
  const transport::AllreducePath path = options.paths.of(static_cast<std::size_t>(nodes), bytes);
  if (nodes == 1) return {.local = local};
  if (path.flat) return {.nodes = group.size, .algorithm = path.algorithm};
  return {.local = local, .nodes = nodes, .algorithm = path.algorithm};
}

// An exchange of `elements` between so many nodes, where so many ranks of a node share its port:
// `owners` of each group, each of which has its share.
double between_nodes(double elements, const AllreduceWay& way, int owners, int senders,
                     const PlanOptions& options) {
  const double share = elements / owners;
  const LinkCost link = fabric_of_one_of(senders, options);
  switch (way.algorithm) {
    case AllreduceAlgorithm::doubling:
      return doubling_seconds(share, way.nodes, link);
    case AllreduceAlgorithm::halving:
      return halving_seconds(share, way.nodes, link);
    case AllreduceAlgorithm::ring:
      return 2.0 * ring_seconds(share, way.nodes, senders, options);
  }
  return 0.0;
}

}  // namespace

double allreduce_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  const AllreduceWay way = allreduce_way(elements, group, options);
  const double inside = allreduce_inside(elements, way.local, way.nodes == 1, options.node);
  if (way.nodes == 1) return inside;
  const int owners = way.algorithm == AllreduceAlgorithm::doubling ? 1 : way.local;
  const int senders = options.ranks_per_node / way.local * owners;
  const double between = between_nodes(elements, way, owners, senders, options);
  const auto bytes = static_cast<std::size_t>(elements * element_bytes);
  const auto blocks = transport::AllreducePaths::blocks(bytes, static_cast<std::size_t>(owners),
                                                        static_cast<std::size_t>(way.nodes));
  return overlapped(inside, between, blocks);
}

double with_adding(double elements, ProcessGroup group, const PlanOptions& options) {
  const AllreduceWay way = allreduce_way(elements, group, options);
  if (way.nodes == 1) return 1.0;
  switch (way.algorithm) {
    case AllreduceAlgorithm::doubling:
      return 1.0 + adding;
    case AllreduceAlgorithm::halving: {
      const auto [sent, added] = halving_work(way.nodes);
      return 1.0 + adding * added / sent;
    }
    case AllreduceAlgorithm::ring:
      return 1.0;
  }
  return 1.0;
}

double agreement_seconds(const PlanOptions& options) {
  return allreduce_seconds(2.0, {.size = options.ranks, .stride = 1}, options);
}

// One message each way between neighbours; they are sent at the same time.
double halo_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  if (group.size == 1 || elements == 0.0) return 0.0;
  return message_seconds(elements, link_within(group, options));
}

double messages_seconds(Messages messages, ProcessGroup group, const PlanOptions& options) {
  if (messages.count == 0) return 0.0;
  const LinkCost link = link_within(group, options);
  const std::int64_t latencies = is_on_one_node(group, options) ? messages.count : 1;
  return static_cast<double>(latencies) * link.alpha_seconds +
         static_cast<double>(messages.elements) * element_bytes / link.bandwidth;
}

double received_seconds(std::span<const Received> ranks, const PlanOptions& options) {
  const auto bytes_of = [&](std::int64_t elements) {
    return in_f32(static_cast<double>(elements), options.type) * element_bytes;
  };
  const double port = options.port_bandwidth > 0.0 ? options.port_bandwidth
                                                   : std::numeric_limits<double>::infinity();
  double longest = 0.0;
  std::int64_t into_node = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [near, far] = ranks[rank];
    if (rank % static_cast<std::size_t>(options.ranks_per_node) == 0) into_node = 0;
    into_node += far.elements;
    const double from_node = static_cast<double>(near.count) * options.node.alpha_seconds +
                             bytes_of(near.elements) / options.node.bandwidth;
    const double from_others = far.count == 0
                                   ? 0.0
                                   : options.fabric.alpha_seconds +
                                         std::max(bytes_of(far.elements) / options.fabric.bandwidth,
                                                  bytes_of(into_node) / port);
    longest = std::max({longest, from_node, from_others});
  }
  return longest;
}

namespace {

void require_option(bool possible, const char* what) {
  if (!possible) throw std::invalid_argument(std::string("plan: ") + what);
}

void check(const LinkCost& link) {
  const bool possible = std::isfinite(link.alpha_seconds) && link.alpha_seconds >= 0.0;
  require_option(possible, "alpha must be a number of seconds, at least 0");
  require_option(link.bandwidth > 0.0, "bandwidth must be greater than 0");
}

}  // namespace

void check(const PlanOptions& options) {
  check(options.fabric);
  check(options.node);
  require_option(options.port_bandwidth >= 0.0, "port_bandwidth must be at least 0");
  require_option(options.ranks >= 1, "needs at least one rank");
  require_option(options.batch >= 1, "needs at least one sample in a step");
  require_option(options.flops >= 0.0, "flops must be at least 0");
  require_option(options.optimizer_elements >= 0, "optimizer_elements must be at least 0");
  require_option(!options.divides_optimizer || options.update_bytes,
                 "divides_optimizer needs update_bytes, which says how large a share is");
  require_option(options.micro_batches >= 1, "needs at least one micro-batch");
  require_option(options.micro_batches <= options.batch, "micro-batches must have samples");
  require_option(options.threads >= 1, "needs at least one thread of a rank");
  require_option(options.bucket_bytes >= 0, "bucket_bytes must be at least 0");
  require_option(options.slowdown >= 1.0, "a slowdown must be at least 1");
  require_option(options.ranks_per_node >= 1, "needs at least one rank per node");
  require_option(options.ranks % options.ranks_per_node == 0,
                 "ranks must be a multiple of the ranks per node");
}

std::vector<WeightLayer> weight_layers(const Model& model) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  std::vector<WeightLayer> layers;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& spec = model.layers[i];
    if (!has_weights(spec)) continue;
    const tensor::Shape& x = shapes[spec.inputs[0]];
    WeightLayer layer{.weights = spec.kind->weights(x), .x = x, .y = shapes[i + 1]};
    if (const auto windows = spec.kind->windows()) layer.kernel = windows->h.kernel;
    if (is_fully_connected(spec)) {  // it sees its input as one pixel
      layer.fully_connected = true;
      layer.x = {1, 1, 1, x.image()};
    }
    layer.name = spec.name;
    layer.first = layers.empty();
    layer.inputs = layer.x.image();
    layer.outputs = layer.y.image();
    layers.push_back(std::move(layer));
  }
  return layers;
}

namespace {

// Samples of a column of the grid, on average.
double samples_of(const FormSplit& split, const PlanOptions& options) {
  return static_cast<double>(options.batch) / split.pc;
}

// Of the gradients of so many weights, over the ranks that hold the same ones.
double gradients_seconds(double weights, ProcessGroup group, const PlanOptions& options) {
  return 2.0 * collective_seconds(in_f32(weights, options.gradient_type), group, options);
}

// Forward: allgather Y. Backward: allreduce dX over the same ranks, a sum in fp32, and dW over the
// others.
double grid_seconds(const WeightLayer& layer, const FormSplit& split, const PlanOptions& options) {
  const ProcessGroup rows{.size = split.pr, .stride = 1};
  const ProcessGroup columns{.size = split.pc, .stride = split.pr};
  const double samples = samples_of(split, options);
  const auto elements = [&](std::int64_t per_sample) {
    return samples * static_cast<double>(per_sample);
  };
  const double gathered = in_f32(elements(layer.outputs), options.type);
  double seconds = collective_seconds(gathered, rows, options);
  if (!layer.first) seconds += 2.0 * collective_seconds(elements(layer.inputs), rows, options);
  const double weights = static_cast<double>(layer.weights) / split.pr;
  return seconds + gradients_seconds(weights, columns, options);
}

// Halos of x before forward, of dy before backward-data; dW over all ranks.
double domain_seconds(const WeightLayer& layer, const FormSplit& split,
                      const PlanOptions& options) {
  const ProcessGroup rows{.size = split.pr, .stride = 1};
  const double samples = samples_of(split, options);
  const auto halo = [&](const tensor::Shape& shape) {
    return in_f32(samples * static_cast<double>(shape.w * shape.c * (layer.kernel / 2)),
                  options.type);
  };
  double seconds = halo_seconds(halo(layer.x), rows, options);
  if (!layer.first) seconds += halo_seconds(halo(layer.y), rows, options);
  const ProcessGroup all{.size = options.ranks, .stride = 1};
  return seconds + gradients_seconds(static_cast<double>(layer.weights), all, options);
}

}  // namespace

double layer_seconds(const WeightLayer& layer, const FormSplit& split, const PlanOptions& options) {
  return split.domain ? domain_seconds(layer, split, options) : grid_seconds(layer, split, options);
}

// Forward, backward-weights and, but for the first layer, backward-data: each multiplies and adds
// every weight once per position of the output.
double layer_flops(const WeightLayer& layer) {
  const double pass = 2.0 * static_cast<double>(layer.weights * layer.y.h * layer.y.w);
  return layer.first ? 2.0 * pass : 3.0 * pass;
}

FormSplit split_of(const WeightLayer& layer, Strategy strategy, int pr, int pc,
                   const PlanOptions& options) {
  const FormSplit grid{.domain = false, .pr = pr, .pc = pc};
  if (strategy == Strategy::domain) return {.domain = true, .pr = pr, .pc = pc};
  if (strategy != Strategy::integrated || layer.fully_connected) return grid;
  // Integrated parallelism: convolutions by samples as long as every rank has one, by rows beyond
  // that.
  if (options.ranks <= options.batch) return {.domain = false, .pr = 1, .pc = options.ranks};
  return {.domain = true, .pr = pr, .pc = pc};
}

namespace {

// Samples that the first replica has of a step; none has more.
std::int64_t share_of(int replicas, const PlanOptions& options) {
  return (options.batch + replicas - 1) / replicas;
}

}  // namespace

// Every replica has a sample, and every micro-batch of the first.
std::vector<int> grid_rows(const PlanOptions& options) {
  std::vector<int> rows;
  for (int pr = 1; pr <= options.ranks; ++pr) {
    if (options.ranks % pr != 0) continue;
    const int replicas = options.ranks / pr;
    const bool each_has_one = share_of(replicas, options) >= options.micro_batches;
    if (replicas <= options.batch && each_has_one) rows.push_back(pr);
  }
  return rows;
}

// For the reader of the table: which grid this one layer would like best.
int cheapest_pr(const WeightLayer& layer, const PlanOptions& options) {
  int best = options.ranks;
  double least = std::numeric_limits<double>::infinity();
  for (const int pr : grid_rows(options)) {
    const FormSplit split{.domain = false, .pr = pr, .pc = options.ranks / pr};
    const double seconds = layer_seconds(layer, split, options);
    if (seconds < least) {
      least = seconds;
      best = pr;
    }
  }
  return best;
}

namespace {

// A layer that is not split has as few filters as the model says; nothing better is to be had.
std::string complaint(const WeightLayer& layer, const FormSplit& split) {
  if (split.pr == 1) return {};
  if (!split.domain) {
    const std::int64_t filters = layer.y.c / split.pr;
    if (filters >= least_channels) return {};
    return fmt::format("{}: {} filters over {} ranks leave {} each, fewer than {}", layer.name,
                       layer.y.c, split.pr, filters, least_channels);
  }
  if (layer.fully_connected) return {};
  const std::int64_t halo = layer.kernel / 2;
  const std::int64_t rows = std::min(layer.x.h, layer.y.h);
  if (rows / split.pr >= std::max<std::int64_t>(halo, 1)) return {};
  return fmt::format("{}: {} rows over {} ranks leave {} each, and the halo has {}", layer.name,
                     rows, split.pr, rows / split.pr, halo);
}

}  // namespace

std::string refusal_of(const std::vector<WeightLayer>& layers, const GridPlan& grid,
                       const PlanOptions& options) {
  if (grid.pc > options.batch) {
    return fmt::format("a batch of {} leaves some of {} columns without a sample", options.batch,
                       grid.pc);
  }
  const std::int64_t share = share_of(grid.pc, options);
  if (share < options.micro_batches) {
    return fmt::format("{} micro-batches are more than the {} samples that a replica has of a step",
                       options.micro_batches, share);
  }
  for (const WeightLayer& layer : layers) {
    std::string reason =
        complaint(layer, split_of(layer, grid.strategy, grid.pr, grid.pc, options));
    if (!reason.empty()) return reason;
  }
  if (options.memory_limit > 0 && grid.bytes_per_rank > options.memory_limit) {
    return fmt::format("needs {} bytes on a rank, more than the {} allowed", grid.bytes_per_rank,
                       options.memory_limit);
  }
  return {};
}

namespace {

// The values of P_r that a strategy allows.
std::vector<int> rows_of(Strategy strategy, const PlanOptions& options) {
  if (strategy == Strategy::batch) return {1};
  if (strategy == Strategy::model || strategy == Strategy::domain) return {options.ranks};
  return grid_rows(options);
}

LayerPlan plan_layer(const WeightLayer& layer, const GridPlan& grid, const PlanOptions& options) {
  const FormSplit split = split_of(layer, grid.strategy, grid.pr, grid.pc, options);
  return {.name = layer.name,
          .domain = split.domain,
          .pr = split.pr,
          .pc = split.pc,
          .communication_seconds = layer_seconds(layer, split, options)};
}

double compute_seconds(const std::vector<WeightLayer>& layers, const PlanOptions& options) {
  double flops = 0.0;
  for (const WeightLayer& layer : layers) flops += layer_flops(layer);
  return flops * static_cast<double>(options.batch) / options.ranks / options.flops;
}

// The same as splits of single layers, as far as a run knows it: a fully connected layer has no
// rows and columns, and is split by samples where the form has a domain.
LayerSplit split_on_grid(const LayerSpec& layer, const FormSplit& form, int pr) {
  if (pr == 1 || form.pr == 1) return {.kind = SplitKind::sample};
  if (!form.domain) {
    // A convolution in groups has no such split; every grid leaves it split by samples.
    if (layer.kind->traits().whole_channels) return {.kind = SplitKind::sample};
    return {.kind = SplitKind::channel, .channels = {1, pr}};
  }
  if (is_fully_connected(layer)) return {.kind = SplitKind::sample};
  return {.kind = SplitKind::space, .h = pr, .w = 1};
}

std::uint64_t bytes_on(const Model& model, const std::vector<WeightLayer>& layers,
                       const GridPlan& grid, const PlanOptions& options, KernelMemories& kernels) {
  std::vector<LayerSplit> splits(model.layers.size());
  auto next = layers.begin();
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (!has_weights(model.layers[i])) continue;
    const FormSplit form = split_of(*next++, grid.strategy, grid.pr, grid.pc, options);
    splits[i] = split_on_grid(model.layers[i], form, grid.pr);
  }
  return rank_bytes(kernels, model, splits, {.pr = grid.pr, .pc = grid.pc}, options);
}

GridPlan plan_grid(const Model& model, const std::vector<WeightLayer>& layers, Strategy strategy,
                   int pr, const PlanOptions& options, KernelMemories& kernels) {
  GridPlan grid{.strategy = strategy, .pr = pr, .pc = options.ranks / pr};
  for (const WeightLayer& layer : layers) {
    grid.layers.push_back(plan_layer(layer, grid, options));
    grid.communication_seconds += grid.layers.back().communication_seconds;
  }
  if (options.flops > 0.0) grid.compute_seconds = compute_seconds(layers, options);
  grid.bytes_per_rank = bytes_on(model, layers, grid, options, kernels);
  grid.refused = refusal_of(layers, grid, options);
  return grid;
}

}  // namespace

std::string_view name_of(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::batch:
      return "batch";
    case Strategy::model:
      return "model";
    case Strategy::grid:
      return "grid";
    case Strategy::domain:
      return "domain";
    case Strategy::integrated:
      break;
  }
  return "integrated";
}

std::vector<GridPlan> plan(const Model& model, Strategy strategy, const PlanOptions& options) {
  check(options);
  const std::vector<WeightLayer> layers = weight_layers(model);
  std::vector<GridPlan> plans;
  KernelMemories kernels(options.threads);
  for (const int pr : rows_of(strategy, options)) {
    plans.push_back(plan_grid(model, layers, strategy, pr, options, kernels));
  }
  // The same for all grids, so it is computed once per layer.
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const int cheapest = cheapest_pr(layers[i], options);
    for (GridPlan& grid : plans) grid.layers[i].cheapest_pr = cheapest;
  }
  return plans;
}

void rank(std::vector<GridPlan>& plans) {
  std::ranges::sort(plans, {}, [](const GridPlan& plan) {
    return std::tuple(!plan.refused.empty(), plan.seconds(), plan.strategy, plan.pr);
  });
}

int optimizer_elements(const Experiment::Optimizer& optimizer) {
  return optimizer.name == "adam" || optimizer.name == "adamw" ? 2 : 1;
}

}  // namespace rondo::train
