#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>

#include "plan/message_costs.hpp"

namespace rondo::train {

// Throws std::invalid_argument where an option is impossible.
void check(const PlanOptions& options);

// A convolution or a fully connected layer (k = 1, X and Y of one pixel), as the cost model sees
// it: elements of one sample, of weights without biases.
struct WeightLayer {
  std::string name = {};
  bool fully_connected = false;
  bool first = false;        // nobody needs the gradient of its input
  std::int64_t weights = 0;  // |W|
  std::int64_t outputs = 0;  // d
  std::int64_t inputs = 0;   // e
  std::int64_t kernel = 1;   // k
  tensor::Shape x = {};
  tensor::Shape y = {};
};

[[nodiscard]] std::vector<WeightLayer> weight_layers(const Model& model);

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

// Why nobody should use this grid, as GridPlan::refused says it; empty: usable.
[[nodiscard]] std::string refusal_of(const std::vector<WeightLayer>& layers, const GridPlan& grid,
                                     const PlanOptions& options);

}  // namespace rondo::train
