// The closed forms of plan.hpp (Gholami et al., SPAA 2018): what each strategy communicates for
// each layer with weights, which grids are refused and why, and the order in which grids are shown.

#include "plan/closed_forms.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <rondo/train/plan.hpp>

#include "layers/layer_type.hpp"
#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"
#include "plan/layout_search.hpp"

namespace rondo::train {
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

void check_costs(const PlanOptions& options) {
  check(options.fabric);
  check(options.node);
  require_option(options.port_bandwidth >= 0.0, "port_bandwidth must be at least 0");
  require_option(options.batch >= 1, "needs at least one sample in a step");
  require_option(options.optimizer_elements >= 0, "optimizer_elements must be at least 0");
  require_option(options.micro_batches >= 1, "needs at least one micro-batch");
  require_option(options.micro_batches <= options.batch, "micro-batches must have samples");
  require_option(options.slowdown >= 1.0, "a slowdown must be at least 1");
  require_option(options.ranks_per_node >= 1, "needs at least one rank per node");
}

void check(const PlanOptions& options) {
  check_costs(options);
  require_option(options.ranks >= 1, "needs at least one rank");
  require_option(options.flops >= 0.0, "flops must be at least 0");
  require_option(!options.divides_optimizer || options.update_bytes,
                 "divides_optimizer needs update_bytes, which says how large a share is");
  require_option(options.threads >= 1, "needs at least one thread of a rank");
  require_option(options.bucket_bytes >= 0, "bucket_bytes must be at least 0");
  require_option(options.ranks % options.ranks_per_node == 0,
                 "ranks must be a multiple of the ranks per node");
}

namespace {

// Convolutions and fully connected layers, for one sample: biases count as nothing, and a fully
// connected layer sees its input as one pixel.
std::vector<JobLayer> weight_layers(const GridJob& job) {
  std::vector<JobLayer> layers;
  for (std::size_t i = 0; i < job.model.layers.size(); ++i) {
    JobLayer layer = layer_of(job, i);
    if (!layer.has_split()) continue;
    layer.input_gradient = !layers.empty();  // nobody needs that of the first one
    layers.push_back(layer);
  }
  return layers;
}

// The rows and columns that a kernel reads beyond its part.
std::int64_t halo_of(const JobLayer& layer) {
  const std::optional<Windows> windows = windows_if_any(layer);
  return windows ? windows->h.kernel / 2 : 0;
}

// Seconds to reduce the gradients of so many weights over the ranks that hold the same ones.
double gradients_seconds(double weights, ProcessGroup group, const PlanOptions& options) {
  return 2.0 * collective_seconds(in_f32(weights, options.gradient_type), group, options);
}

// Forward: allgather Y. Backward: allreduce dX over the same ranks, a sum in fp32, and dW over the
// others.
double grid_seconds(const JobLayer& layer, const LayerPlan& split, const PlanOptions& options) {
  const ProcessGroup rows{.size = split.pr, .stride = 1};
  const ProcessGroup columns{.size = split.pc, .stride = split.pr};
  const auto elements = [&](const tensor::Shape& value) {
    return static_cast<double>(options.batch) / split.pc * static_cast<double>(value.image());
  };
  double seconds = collective_seconds(in_f32(elements(layer.y), options.type), rows, options);
  if (layer.input_gradient) {
    seconds += 2.0 * collective_seconds(elements(layer.x), rows, options);
  }
  const double weights = static_cast<double>(weights_of(layer)) / split.pr;
  return seconds + gradients_seconds(weights, columns, options);
}

// Halos of x before forward, of dy before backward-data; dW over all ranks.
double domain_seconds(const JobLayer& layer, const LayerPlan& split, const PlanOptions& options) {
  const ProcessGroup rows{.size = split.pr, .stride = 1};
  const auto halo = [&](const tensor::Shape& value) {
    const double samples = static_cast<double>(options.batch) / split.pc;
    const double elements = samples * static_cast<double>(value.w * value.c * halo_of(layer));
    return halo_seconds(in_f32(elements, options.type), rows, options);
  };
  const double halos = halo(layer.x) + (layer.input_gradient ? halo(layer.y) : 0.0);
  const ProcessGroup all{.size = options.ranks, .stride = 1};
  return halos + gradients_seconds(static_cast<double>(weights_of(layer)), all, options);
}

// The terms of the closed form that belong to this layer.
double layer_seconds(const JobLayer& layer, const LayerPlan& split, const PlanOptions& options) {
  return split.domain ? domain_seconds(layer, split, options) : grid_seconds(layer, split, options);
}

// Forward, backward-weights and, but for the first layer, backward-data: each multiplies and adds
// every weight once per position of the output of a sample.
double layer_flops(const JobLayer& layer) {
  const double pass = 2.0 * static_cast<double>(weights_of(layer) * layer.y.h * layer.y.w);
  return layer.input_gradient ? 3.0 * pass : 2.0 * pass;
}

// How `strategy` splits the layer on the grid pr x pc. Split by batch it is a grid with pr = 1.
LayerPlan split_of(const JobLayer& layer, Strategy strategy, int pr, const PlanOptions& options) {
  LayerPlan split{.name = layer.spec.name, .pr = pr, .pc = options.ranks / pr};
  split.domain = strategy == Strategy::domain;
  if (strategy != Strategy::integrated || layer.is_fully_connected()) return split;
  // Integrated parallelism: convolutions by samples as long as every rank has one, by rows beyond
  // that.
  split.domain = options.ranks > options.batch;
  if (!split.domain) split.pr = 1;
  split.pc = options.ranks / split.pr;
  return split;
}

// Samples that the first replica has of a step; none has more.
std::int64_t share_of(int replicas, const PlanOptions& options) {
  return largest_part(options.batch, replicas);
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

namespace {

// For the reader of the table: the P_r with the least grid terms of this layer alone, the smaller
// of equal ones.
int cheapest_pr(const JobLayer& layer, const PlanOptions& options) {
  int best = options.ranks;
  double least = std::numeric_limits<double>::infinity();
  for (const int pr : grid_rows(options)) {
    const double seconds =
        layer_seconds(layer, split_of(layer, Strategy::grid, pr, options), options);
    if (seconds >= least) continue;
    least = seconds;
    best = pr;
  }
  return best;
}

// A layer that is not split has as few filters as the model says; nothing better is to be had.
std::string complaint(const JobLayer& layer, const LayerPlan& split, const PlanOptions& options) {
  const std::int64_t samples = share_of(split.pc, options);
  if (samples < options.micro_batches) {
    return fmt::format("{}: {} micro-batches are more than the {} samples of a rank", split.name,
                       options.micro_batches, samples);
  }
  if (split.pr == 1) return {};
  if (!split.domain) {
    if (options.whole_layers) {
      return fmt::format("{}: its update needs the whole layer on every rank", split.name);
    }
    const std::int64_t filters = layer.y.c / split.pr;
    if (filters >= least_channels) return {};
    return fmt::format("{}: {} filters over {} ranks leave {} each, fewer than {}", split.name,
                       layer.y.c, split.pr, filters, least_channels);
  }
  if (layer.is_fully_connected()) return {};
  const std::int64_t halo = halo_of(layer);
  const std::int64_t rows = std::min(layer.x.h, layer.y.h);
  if (rows / split.pr >= std::max<std::int64_t>(halo, 1)) return {};
  return fmt::format("{}: {} rows over {} ranks leave {} each, and the halo has {}", split.name,
                     rows, split.pr, rows / split.pr, halo);
}

// Why nobody should use this grid, as GridPlan::refused says it; empty: usable.
std::string refusal_of(const std::vector<JobLayer>& layers, const GridPlan& grid,
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
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::string reason = complaint(layers[i], grid.layers[i], options);
    if (!reason.empty()) return reason;
  }
  if (options.memory_limit > 0 && grid.bytes_per_rank > options.memory_limit) {
    return fmt::format("needs {} bytes on a rank, more than the {} allowed", grid.bytes_per_rank,
                       options.memory_limit);
  }
  return {};
}

// The values of P_r that a strategy allows.
std::vector<int> rows_of(Strategy strategy, const PlanOptions& options) {
  if (strategy == Strategy::batch) return {1};
  if (strategy == Strategy::model || strategy == Strategy::domain) return {options.ranks};
  return grid_rows(options);
}

double compute_seconds(const std::vector<JobLayer>& layers, const PlanOptions& options) {
  double flops = 0.0;
  for (const JobLayer& layer : layers) flops += layer_flops(layer);
  return flops * static_cast<double>(options.batch) / options.ranks / options.flops;
}

// The same as splits of single layers, as far as a run knows it: a fully connected layer has no
// rows and columns, and is split by samples where the form has a domain.
LayerSplit split_on_grid(const LayerSpec& layer, const LayerPlan& form, int pr) {
  if (pr == 1 || form.pr == 1) return {.kind = SplitKind::sample};
  if (!form.domain) {
    // A convolution in groups has no such split; every grid leaves it split by samples.
    if (layer.kind->traits().whole_channels) return {.kind = SplitKind::sample};
    return {.kind = SplitKind::channel, .channels = {1, pr}};
  }
  if (is_fully_connected(layer)) return {.kind = SplitKind::sample};
  return {.kind = SplitKind::space, .h = pr, .w = 1};
}

std::uint64_t bytes_on(const Model& model, const GridPlan& grid, const PlanOptions& options,
                       KernelMemories& kernels) {
  std::vector<LayerSplit> splits;
  auto next = grid.layers.begin();
  for (const LayerSpec& layer : model.layers) {
    splits.push_back(has_weights(layer) ? split_on_grid(layer, *next++, grid.pr) : LayerSplit{});
  }
  return rank_bytes(kernels, model, splits, {.pr = grid.pr, .pc = grid.pc}, options);
}

GridPlan plan_grid(const Model& model, const std::vector<JobLayer>& layers, Strategy strategy,
                   int pr, const PlanOptions& options, KernelMemories& kernels) {
  GridPlan grid{.strategy = strategy, .pr = pr, .pc = options.ranks / pr};
  for (const JobLayer& layer : layers) {
    LayerPlan split = split_of(layer, strategy, pr, options);
    split.communication_seconds = layer_seconds(layer, split, options);
    grid.communication_seconds += split.communication_seconds;
    grid.layers.push_back(std::move(split));
  }
  if (options.flops > 0.0) grid.compute_seconds = compute_seconds(layers, options);
  grid.bytes_per_rank = bytes_on(model, grid, options, kernels);
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
  const GridJob job{.model = model, .options = options, .grid = {}, .shapes = shapes_of(model, 1)};
  const std::vector<JobLayer> layers = weight_layers(job);
  std::vector<GridPlan> plans;
  KernelMemories kernels(options.threads, options.convolution);
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

}  // namespace rondo::train
