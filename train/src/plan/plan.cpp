#include <rondo/train/plan.hpp>

#include <algorithm>
#include <tuple>

#include "layers/layer_type.hpp"
#include "plan/check_options.hpp"
#include "plan/layer_cost.hpp"
#include "plan/rank_memory.hpp"
#include "plan/refusal.hpp"
#include "plan/weight_layer.hpp"

namespace rondo::train {
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
  if (!form.domain) return {.kind = SplitKind::channel, .channels = {1, pr}};
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
