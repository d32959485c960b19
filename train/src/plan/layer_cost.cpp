#include "plan/layer_cost.hpp"

#include <limits>

#include "plan/collective_cost.hpp"

namespace rondo::train {
namespace {

// Samples of a column of the grid, on average.
double samples_of(const FormSplit& split, const PlanOptions& options) {
  return static_cast<double>(options.batch) / split.pc;
}

// Forward: allgather Y. Backward: allreduce dX over the same ranks, dW over the others.
double grid_seconds(const WeightLayer& layer, const FormSplit& split, const PlanOptions& options) {
  const Group rows{.size = split.pr, .stride = 1};
  const Group columns{.size = split.pc, .stride = split.pr};
  const double samples = samples_of(split, options);
  const auto words = [&](std::int64_t per_sample) {
    return samples * static_cast<double>(per_sample);
  };
  double seconds = collective_seconds(words(layer.outputs), rows, options);
  if (!layer.first) seconds += 2.0 * collective_seconds(words(layer.inputs), rows, options);
  const double weights = static_cast<double>(layer.weights) / split.pr;
  return seconds + 2.0 * collective_seconds(weights, columns, options);
}

// Halos of x before forward, of dy before backward-data; dW over all ranks.
double domain_seconds(const WeightLayer& layer, const FormSplit& split,
                      const PlanOptions& options) {
  const Group rows{.size = split.pr, .stride = 1};
  const double samples = samples_of(split, options);
  const auto halo = [&](const tensor::Shape& shape) {
    return samples * static_cast<double>(shape.w * shape.c * (layer.kernel / 2));
  };
  double seconds = halo_seconds(halo(layer.x), rows, options);
  if (!layer.first) seconds += halo_seconds(halo(layer.y), rows, options);
  const Group all{.size = options.ranks, .stride = 1};
  return seconds + 2.0 * collective_seconds(static_cast<double>(layer.weights), all, options);
}

}  // namespace

double layer_seconds(const WeightLayer& layer, const FormSplit& split, const PlanOptions& options) {
  return split.domain ? domain_seconds(layer, split, options) : grid_seconds(layer, split, options);
}

double layer_flops(const WeightLayer& layer) {
  const double pass = 2.0 * static_cast<double>(layer.weights * layer.y.h * layer.y.w);
  return layer.first ? 2.0 * pass : 3.0 * pass;
}

FormSplit split_of(const WeightLayer& layer, Strategy strategy, int pr, int pc,
                   const PlanOptions& options) {
  const FormSplit grid{.domain = false, .pr = pr, .pc = pc};
  if (strategy == Strategy::domain) return {.domain = true, .pr = pr, .pc = pc};
  if (strategy != Strategy::integrated || layer.fully_connected) return grid;
  if (options.ranks <= options.batch) return {.domain = false, .pr = 1, .pc = options.ranks};
  return {.domain = true, .pr = pr, .pc = pc};
}

std::vector<int> grid_rows(const PlanOptions& options) {
  std::vector<int> rows;
  for (int pr = 1; pr <= options.ranks; ++pr) {
    if (options.ranks % pr == 0 && options.ranks / pr <= options.batch) rows.push_back(pr);
  }
  return rows;
}

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

}  // namespace rondo::train
