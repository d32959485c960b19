#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/layer_split.hpp>

#include "plan/grid_job.hpp"

namespace rondo::train {

// One way in which a layer can run: where it reads x so, it writes y so, at this price.
struct LayerOption {
  int x = 0;  // numbers of layouts
  int y = 0;
  LayerSplit split = {};  // of a layer that follows: its input's
  double compute = 0.0;   // seconds, as the next two
  double exchange = 0.0;
  double reduction = 0.0;
  std::uint64_t words = 0;     // of a rank's memory, but for gradients of values
  std::uint64_t gradient = 0;  // of the largest of those

  [[nodiscard]] double seconds() const noexcept { return compute + exchange + reduction; }
};

// All layouts that a value can have on a grid; a layout's number is its place here.
[[nodiscard]] std::vector<ValueLayout> possible_layouts(const GridJob& job);

// Every rank needs whole logits of its samples: the layout to which those that lie otherwise are
// brought.
[[nodiscard]] std::optional<int> closing_layout(int logits,
                                                const std::vector<ValueLayout>& layouts);

// Every way in which the kernels are not starved, and every rank has something to do. Empty: none.
[[nodiscard]] std::vector<LayerOption> options_of(const GridJob& job, const JobLayer& layer,
                                                  const std::vector<ValueLayout>& layouts,
                                                  const ComputeCosts& costs);

}  // namespace rondo::train
