#include <fmt/format.h>

#include <rondo/train/plan_best.hpp>

#include "config/split_text.hpp"

namespace rondo::train {

std::vector<LayerSplit> layer_splits(const Model& model, const BestPlan& plan) {
  std::vector<LayerSplit> splits(model.layers.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < model.layers.size() && next < plan.layers.size(); ++i) {
    if (model.layers[i].name == plan.layers[next].name) splits[i] = plan.layers[next++].split;
  }
  return splits;
}

std::string split_text(const LayerSplit& split) { return to_text(split); }

Experiment::Grid grid_keys(const BestPlan& plan) {
  Experiment::Grid grid;
  grid.sample = plan.grid.pc;
  if (plan.grid.pr == 1) return grid;
  grid.filter = plan.grid.pr;
  for (const BestLayer& layer : plan.layers) {
    grid.layers.emplace_back(layer.name, to_text(layer.split));
  }
  return grid;
}

std::string grid_section(const BestPlan& plan) {
  const Experiment::Grid grid = grid_keys(plan);
  std::string text = fmt::format("[grid]\nsample = {}\n", grid.sample);
  if (grid.layers.empty()) return text;
  text += fmt::format("filter = {}\n\n[grid.layers]\n", grid.filter);
  for (const auto& [name, split] : grid.layers)
    text += fmt::format("\"{}\" = \"{}\"\n", name, split);
  return text;
}

}  // namespace rondo::train
