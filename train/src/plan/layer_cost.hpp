#pragma once

#include <vector>

#include <rondo/train/plan.hpp>

#include "plan/weight_layer.hpp"

namespace rondo::train {

// How a closed form splits one layer over all ranks. Split by batch it is a grid with pr = 1.
struct FormSplit {
  bool domain = false;
  int pr = 1;
  int pc = 1;
};

// The terms of the closed form that belong to this layer.
[[nodiscard]] double layer_seconds(const WeightLayer& layer, const FormSplit& split,
                                   const PlanOptions& options);

// Flops of the layer for one sample in forward and backward.
[[nodiscard]] double layer_flops(const WeightLayer& layer);

// How `strategy` splits the layer on the grid pr x pc.
[[nodiscard]] FormSplit split_of(const WeightLayer& layer, Strategy strategy, int pr, int pc,
                                 const PlanOptions& options);

// The rows P_r of all grids P_r x (P/P_r) that give every column a sample, rising.
[[nodiscard]] std::vector<int> grid_rows(const PlanOptions& options);

// The P_r with the least grid terms of this layer alone; the smaller of equal ones.
[[nodiscard]] int cheapest_pr(const WeightLayer& layer, const PlanOptions& options);

}  // namespace rondo::train
