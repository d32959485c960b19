#include <rondo/train/plan.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "command.hpp"
#include "exit_status.hpp"
#include "plan/plan_report.hpp"
#include "plan/planned_run.hpp"

namespace rondo::tools {
namespace {

using train::Strategy;

constexpr std::array closed_forms = {Strategy::batch, Strategy::model, Strategy::grid,
                                     Strategy::domain, Strategy::integrated};

struct Options {
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
  std::string strategy = "all";
  std::string format = "table";
  train::PlanOptions plan = {};
  std::optional<double> node_alpha = {};
  std::optional<double> node_bandwidth = {};
};

bool is_wanted(Strategy strategy, const std::string& name) {
  return name == "all" || name == name_of(strategy);
}

train::PlanOptions plan_options(const Options& options, const train::Experiment& experiment) {
  train::PlanOptions plan = options.plan;
  plan.batch = experiment.train.global_batch;
  plan.optimizer_words = optimizer_words(experiment.optimizer);
  plan.node.alpha_seconds = options.node_alpha.value_or(plan.fabric.alpha_seconds);
  plan.node.bandwidth = options.node_bandwidth.value_or(plan.fabric.bandwidth);
  return plan;
}

std::vector<train::GridPlan> plan_all(const train::Model& model, const Options& options,
                                      const train::PlanOptions& plan) {
  std::vector<train::GridPlan> plans;
  for (const Strategy strategy : closed_forms) {
    if (!is_wanted(strategy, options.strategy)) continue;
    std::ranges::move(train::plan(model, strategy, plan), std::back_inserter(plans));
  }
  train::rank(plans);
  return plans;
}

int run_plan(const Options& options) {
  if (options.strategy == "best") {
    throw UsageError(
        "--strategy best, the search for a split of each layer, is not there yet; the others are "
        "evaluated and ranked without --strategy");
  }
  const train::Experiment experiment = train::read_experiment(options.config, options.settings);
  const train::Model model = planned_model(experiment);
  const train::PlanOptions plan = plan_options(options, experiment);
  try {
    const std::vector<train::GridPlan> plans = plan_all(model, options, plan);
    if (options.format == "json") {
      fmt::print("{}", plans_as_json(plans));
      return exit_done;
    }
    fmt::print("{}, {} samples a step on {} ranks, {} per node; {:.3g} us and {:.3g} GB/s\n",
               model.name, plan.batch, plan.ranks, plan.ranks_per_node,
               1e6 * plan.fabric.alpha_seconds, 1e-9 * plan.fabric.bandwidth);
    fmt::print("{}", plans_as_table(plans));
    return exit_done;
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

void add_job_options(CLI::App& app, Options& options) {
  app.add_option("config", options.config, "As for rondo train; its data are not read")
      ->required()
      ->type_name("CONFIG");
  app.add_option("-n,--ranks", options.plan.ranks, "Ranks of the job")
      ->required()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("P");
  app.add_option("--set", options.settings, "Override a key: section.key=value; repeatable")
      ->type_name("SETTING")
      ->take_all()
      ->expected(1);
  app.add_option("--ranks-per-node", options.plan.ranks_per_node,
                 "Collectives on two levels (default: 1, flat)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("R");
}

void add_machine_options(CLI::App& app, Options& options) {
  app.add_option("--alpha", options.plan.fabric.alpha_seconds,
                 "Seconds a message takes, on all levels (default: 2e-6)")
      ->check(CLI::Range(0.0, 10.0))
      ->type_name("SECONDS");
  app.add_option("--bandwidth", options.plan.fabric.bandwidth,
                 "Bytes per second of a rank, on all levels (default: 6e9)")
      ->check(CLI::Range(1.0, 1e15))
      ->type_name("BYTES/S");
  app.add_option("--node-alpha", options.node_alpha, "Inside a node (default: --alpha)")
      ->check(CLI::Range(0.0, 10.0))
      ->type_name("SECONDS");
  app.add_option("--node-bandwidth", options.node_bandwidth, "Inside a node (default: --bandwidth)")
      ->check(CLI::Range(1.0, 1e15))
      ->type_name("BYTES/S");
  app.add_option("--flops", options.plan.flops,
                 "Per second and rank: predicts compute time (default: not predicted)")
      ->check(CLI::Range(1.0, 1e18))
      ->type_name("FLOPS");
  app.add_option("--memory-limit", options.plan.memory_limit,
                 "Refuse grids that need more on a rank, as in 16GiB (default: no limit)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("BYTES");
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  CLI::App* plan = app.add_subcommand("plan", "Predict communication and memory on process grids");
  auto options = std::make_shared<Options>();
  add_job_options(*plan, *options);
  add_machine_options(*plan, *options);
  plan->add_option("--strategy", options->strategy,
                   "batch, model, grid, domain, integrated (default: all of them), or best")
      ->check(CLI::IsMember({"all", "batch", "model", "grid", "domain", "integrated", "best"}))
      ->type_name("STRATEGY");
  plan->add_option("--format", options->format, "table, or json: an array of objects")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("FORMAT");
  plan->footer(
      "Evaluates the closed forms of Gholami et al. (SPAA 2018) for the model and the global "
      "batch\n"
      "of the configuration: nothing is run, measured or read. Usable grids come first, the "
      "fastest\n"
      "before the others; a refused one says why.");
  plan->callback([&status, options] { status = run_plan(*options); });
}

}  // namespace rondo::tools
