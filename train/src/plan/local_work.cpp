#include "plan/local_work.hpp"

#include <algorithm>
#include <optional>

namespace rondo::train {
namespace {

// Inputs that make so many outputs where both ends are padded.
std::int64_t inputs_for(std::int64_t outputs, const Window& window) {
  const std::int64_t padding = window.before + window.after;
  return std::max<std::int64_t>((outputs - 1) * window.stride + window.kernel - padding, 1);
}

void take_part_of_image(const JobLayer& layer, const LayerSplit& split, tensor::Shape& input) {
  const std::optional<Windows> windows = windows_if_any(layer);
  if (!windows) {
    input.h = largest_part(layer.x.h, split.h);
    input.w = largest_part(layer.x.w, split.w);
    return;
  }
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
  if (split.kind == SplitKind::space) take_part_of_image(layer, split, work.input);
  if (split.kind != SplitKind::channel) return work;
  const std::optional<LayerKind> part =
      layer.spec.kind->part_by_channel(split.channels, job.grid.pr, work.input);
  if (part) work.kind = *part;
  return work;
}

}  // namespace rondo::train
