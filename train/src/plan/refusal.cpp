#include "plan/refusal.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plan/layer_cost.hpp"
#include "plan/least_channels.hpp"

namespace rondo::train {
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

}  // namespace rondo::train
