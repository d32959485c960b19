#include "trainer/automatic_grid.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/optimizer_words.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

constexpr double flops_of_a_thread = 5e10;
constexpr LinkCost within_a_node{.alpha_seconds = 1e-6, .bandwidth = 1e10};

LinkCost between_nodes(const Experiment::Transport& transport) {
  LinkCost cost;
  if (transport.latency_us > 0.0) cost.alpha_seconds = transport.latency_us * 1e-6;
  if (transport.bandwidth_gbs > 0.0) cost.bandwidth = transport.bandwidth_gbs * 1e9;
  return cost;
}

// Where nodes are of different sizes, every rank counts as a node of its own.
int ranks_per_node(const transport::World& world) {
  const int nodes = world.nodes();
  return nodes > 1 && world.size() % nodes == 0 ? world.size() / nodes : 1;
}

PlanOptions options_of(const Experiment& experiment, const transport::World& world) {
  const bool one_node = world.nodes() <= 1;
  return {.ranks = world.size(),
          .batch = experiment.train.global_batch,
          .fabric = one_node ? within_a_node : between_nodes(experiment.transport),
          .node = within_a_node,
          .ranks_per_node = ranks_per_node(world),
          .memory_limit = static_cast<std::uint64_t>(experiment.train.memory_limit),
          .optimizer_words = optimizer_words(experiment.optimizer),
          .pieces = static_cast<int>(experiment.train.accumulate),
          .threads = static_cast<int>(std::max<std::int64_t>(experiment.train.threads, 1))};
}

std::vector<BestPlan> plans_of(const Model& model, const Experiment& experiment,
                               const transport::World& world) {
  const auto threads = static_cast<double>(std::max<std::int64_t>(experiment.train.threads, 1));
  try {
    return best_plans(model, options_of(experiment, world), FlopRate(flops_of_a_thread * threads));
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("grid.plan: \"auto\" is impossible: ") + error.what());
  }
}

}  // namespace

Experiment::Grid choose_grid_automatically(const Model& model, const Experiment& experiment,
                                           const transport::World& world) {
  const std::vector<BestPlan> plans = plans_of(model, experiment, world);
  const BestPlan& best = plans.front();
  if (!best.refused.empty()) {
    throw ConfigError("grid.plan: \"auto\" finds no grid for " + std::to_string(world.size()) +
                      " ranks: " + best.refused);
  }
  Experiment::Grid grid = grid_keys(best);
  grid.plan = "chosen";
  grid.batch_norm = experiment.grid.batch_norm;
  return grid;
}

}  // namespace rondo::train
