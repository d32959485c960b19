#include "compare/plan.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

TrainRequest request_of(const CompareRequest& request, const SchemeItem& item, std::int64_t seed) {
  TrainRequest run = request.training;
  // What the command line says about links holds for all items, unless an item says otherwise.
  run.settings = all_settings(request.training);
  run.fabric = {};
  run.settings.insert(run.settings.end(), item.settings.begin(), item.settings.end());
  run.settings.push_back(fmt::format("train.seed={}", seed));
  run.folder = request.folder / item.label / fmt::format("seed{}", seed);
  return run;
}

bool is_readable(const TrainRequest& request) {
  try {
    static_cast<void>(train::read_experiment(request.config, all_settings(request)));
    return true;
  } catch (const train::ConfigError&) {
    return false;
  }
}

// Reads the configuration of one run; what only the item can be blamed for names the item.
train::Experiment read_run(const CompareRequest& request, const SchemeItem& item,
                           const TrainRequest& run) {
  try {
    return train::read_experiment(run.config, run.settings);
  } catch (const train::ConfigError& error) {
    if (!is_readable(request.training)) throw;
    std::string_view problem = error.what();
    constexpr std::string_view option = "--set ";
    if (problem.starts_with(option)) problem.remove_prefix(option.size());
    throw UsageError(fmt::format("scheme '{}': {}", item.text, problem));
  }
}

Training plan_run(const CompareRequest& request, const SchemeItem& item, const TrainRequest& run,
                  const Machine& machine) {
  Training training = plan_training(run, read_run(request, item, run), machine);
  const std::optional<int> nodes = training.fabric.fake_nodes;
  training.fabric = request.training.fabric;
  if (nodes) training.fabric.fake_nodes = nodes;
  static_cast<void>(fake_nodes_of(training.fabric, training.placement.ranks()));  // may refuse
  return training;
}

}  // namespace

Plan make_plan(const CompareRequest& request) {
  Plan plan{.items = parse_scheme_items(request.schemes)};
  const Machine machine = read_machine();
  for (const std::int64_t seed : request.seeds) {
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      const SchemeItem& item = plan.items[i];
      PlannedRun run{.item = i,
                     .name = fmt::format("{} seed {}", item.label, seed),
                     .request = request_of(request, item, seed)};
      run.training = plan_run(request, item, run.request, machine);
      run.found = find_run(run.request.folder, run.training);
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

void refuse_other_runs(const Plan& plan) {
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::different) continue;
    throw UsageError(fmt::format(
        "{} holds another run: {}; choose another --folder, or add --anew to replace such runs",
        run.request.folder.string(), run.found.difference));
  }
}

}  // namespace rondo::tools
