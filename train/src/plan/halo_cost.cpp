#include "plan/halo_cost.hpp"

#include <algorithm>
#include <compare>
#include <optional>
#include <vector>

#include <rondo/train/halo.hpp>

namespace rondo::train {
namespace {

// What one part along a dimension needs: so many indices, of which so many are its own; the rest
// lies on one side of it or on both.
struct Need {
  std::int64_t all = 0;
  std::int64_t own = 0;
  std::int64_t sides = 0;

  [[nodiscard]] auto operator<=>(const Need&) const = default;
};

Need need_of(Range held, Range wanted) {
  return {.all = wanted.size(),
          .own = intersection(held, wanted).size(),
          .sides = (wanted.first < held.first ? 1 : 0) + (wanted.last > held.last ? 1 : 0)};
}

enum class Direction { forward, backward };

// The different needs of all parts.
std::vector<Need> needs_of(const Window& window, std::int64_t x, std::int64_t y, int parts,
                           Direction direction) {
  std::vector<Need> needs;
  for (int part = 0; part < parts; ++part) {
    const Range inputs = even_range(x, parts, part);
    const Range outputs = even_range(y, parts, part);
    needs.push_back(direction == Direction::forward
                        ? need_of(inputs, inputs_read(window, outputs, x).range)
                        : need_of(outputs, outputs_fed(window, inputs, y).range));
  }
  std::ranges::sort(needs);
  const auto repeated = std::ranges::unique(needs);
  needs.erase(repeated.begin(), repeated.end());
  return needs;
}

// Of the rank that receives most; `depth` are samples times channels.
Messages halo_of(const std::vector<Need>& rows, const std::vector<Need>& columns,
                 std::int64_t depth) {
  Messages most;
  for (const Need& h : rows) {
    for (const Need& w : columns) {
      most.count = std::max(most.count, (h.sides + 1) * (w.sides + 1) - 1);
      most.words = std::max(most.words, depth * (h.all * w.all - h.own * w.own));
    }
  }
  return most;
}

double window_seconds(const GridJob& job, const JobLayer& layer, const LayerSplit& split,
                      const Windows& windows) {
  const std::int64_t samples = (layer.x.n + job.grid.pc - 1) / job.grid.pc;
  const auto seconds = [&](Direction direction, std::int64_t channels) {
    const auto rows = needs_of(windows.h, layer.x.h, layer.y.h, split.h, direction);
    const auto columns = needs_of(windows.w, layer.x.w, layer.y.w, split.w, direction);
    return messages_seconds(halo_of(rows, columns, samples * channels), job.group(), job.options);
  };
  const double forward = seconds(Direction::forward, layer.x.c);
  return layer.input_gradient ? forward + seconds(Direction::backward, layer.y.c) : forward;
}

bool is_thick_enough(std::int64_t x, std::int64_t y, int parts, std::int64_t halo) {
  return parts == 1 || std::min(x, y) / parts >= std::max<std::int64_t>(halo, 1);
}

}  // namespace

double halo_seconds(const GridJob& job, const JobLayer& layer, const LayerSplit& split) {
  if (layer.averages_images()) {
    const double words = static_cast<double>(layer.y.size()) / job.grid.pc;
    return 2.0 * collective_seconds(words, job.group(), job.options);
  }
  const std::optional<Windows> windows = windows_if_any(layer);
  return windows ? window_seconds(job, layer, split, *windows) : 0.0;
}

bool is_thick_enough(const JobLayer& layer, const LayerSplit& split) {
  if (layer.averages_images()) return layer.x.h >= split.h && layer.x.w >= split.w;
  const std::optional<Windows> windows = windows_if_any(layer);
  const Windows w = windows.value_or(Windows{});
  return is_thick_enough(layer.x.h, layer.y.h, split.h, w.h.kernel / 2) &&
         is_thick_enough(layer.x.w, layer.y.w, split.w, w.w.kernel / 2);
}

}  // namespace rondo::train
