// `rondo plan`: predicts what a training run would cost on many ranks, without training.
//
// The options become a PlanRequest, a configuration makes a PlanJob of it (plan/job.cpp), and the
// library's predictions are shown (plan/answers.cpp).

#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/plan.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "plan/job.hpp"

namespace rondo::tools {
namespace {

// The library throws invalid_argument for what cannot be planned: a mistake of the user here.
int run_plan(const PlanRequest& request) {
  const bool scaling = !request.scaling.empty();
  if (!scaling && !request.ranks) {
    throw UsageError("--ranks is required, or --scaling with a range of them");
  }
  // Grids have layers within them, which no line of CSV holds.
  if (!scaling && request.format == Format::csv) throw UsageError("--format csv is for --scaling");
  // Outside of the try block: its errors have types of their own.
  const PlanJob job = job_of(request);
  try {
    if (scaling) {
      predict_scaling(job);
    } else if (request.strategy == "best") {
      plan_best(job);
    } else {
      plan_by_forms(job);
    }
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return exit_done;
}

// The names of --strategy; all and best are no strategies of their own.
const Choices<std::string> strategies = {
    {"all", "all"},       {"batch", "batch"},           {"model", "model"}, {"grid", "grid"},
    {"domain", "domain"}, {"integrated", "integrated"}, {"best", "best"}};
Choices<std::string> schemes() {
  Choices<std::string> choices;
  for (const sync::SchemeDescription& scheme : sync::schemes()) {
    choices.emplace_back(scheme.name, scheme.name);
  }
  return choices;
}

// Two levels, each with a latency and a bandwidth. The plain options are for both, those of the
// node for the inner one; what was measured comes in by --tuning.
void add_link_options(Command& command, PlanRequest& request) {
  // The library's own defaults are shown in help.
  const train::LinkCost otherwise = request.plan.fabric;
  command.option("--alpha SECONDS", request.alpha, "Seconds a message takes, on all levels")
      .range(0.0, 10.0)
      .with_default(fmt::format("{}", otherwise.alpha_seconds));
  command
      .option("--bandwidth BYTES/S", request.bandwidth, "Bytes per second of a rank, on all levels")
      .range(1.0, 1e15)
      .with_default(fmt::format("{:g}", otherwise.bandwidth));
  command.option("--node-alpha SECONDS", request.node_alpha, "Inside a node (default: --alpha)")
      .range(0.0, 10.0);
  command
      .option("--node-bandwidth BYTES/S", request.node_bandwidth,
              "Inside a node (default: --bandwidth)")
      .range(1.0, 1e15);
  command
      .option("--port-bandwidth BYTES/S", request.plan.port_bandwidth,
              "Of all ranks of a node together, to others (default: no limit)")
      .range(1.0, 1e15);
  command.option("--tuning FILE", request.tuning,
                 "Take the first four from what 'rondo bench tune --format json' has written");
}

// Options for a rank's machine and its memory; `scaling` needs no search and no memory.
void add_machine_options(Command& command, PlanRequest& request, const Option& scaling) {
  command
      .option("--ranks-per-node R", request.plan.ranks_per_node,
              "Collectives on two levels; 1: flat")
      .range(1, 1 << 20)
      .with_default();
  command
      .option("--flops FLOPS", request.plan.flops,
              "Per second and rank: predicts compute time (default: best and --scaling measure "
              "kernels here, the others do not predict it)")
      .range(1.0, 1e18);
  command
      .option("--threads T", request.threads,
              "Of a rank whose kernels are measured (default: train.threads, or 1)")
      .range(1, 4096);
  command
      .option("--measurements M", request.measurements,
              "best: measure splits until so many shapes are measured")
      .range(1, 1'000'000)
      .excludes(scaling)
      .with_default();
  command
      .bytes("--memory-limit BYTES", request.memory_limit,
             "Refuse grids that need more on a rank, as in 16GiB; 0: no limit (default: "
             "train.memory_limit)")
      .excludes(scaling);
}

// --ranks and --strategy ask about grids, --scaling about numbers of ranks. Returns the latter.
Option add_questions(Command& command, PlanRequest& request) {
  // No World has more ranks, and what a rank needs takes a time that grows with their number.
  const Option ranks =
      command.option("-n,--ranks P", request.ranks, "Ranks of the job").range(1, 1 << 16);
  const Option strategy = command.choice("--strategy STRATEGY", request.strategy, strategies,
                                         "batch, model, grid, domain, integrated, all of them, or "
                                         "best: a split for each layer");
  const Option scaling =
      command
          .option("--scaling FIRST:LAST", request.scaling,
                  "Predict steps on FIRST, 2 FIRST, ... up to LAST ranks, by sample alone")
          .excludes(ranks)
          .excludes(strategy);
  command
      .choice("--scheme SCHEME", request.scheme, schemes(),
              "synchronous, sharded, lazy, k_step, hierarchical or cyclic (default: as configured)")
      .needs(scaling);
  const Option per_rank = command
                              .option("--batch-per-rank B", request.batch_per_rank,
                                      "Samples of a rank (default: train.global_batch)")
                              .range(1, 1 << 30)
                              .needs(scaling);
  command
      .flag("--fixed-global-batch", request.fixed_global_batch,
            "Strong scaling: all ranks share train.global_batch")
      .needs(scaling)
      .excludes(per_rank);
  const Option tau =
      command
          .option(
              "--tau TAU", request.tau,
              "lazy: iterations of a window, on average; with a period policy: steps of a round")
          .range(1.0, 1e6)
          .needs(scaling);
  command.option("--metrics FILE", request.metrics, "Take tau from a run's metrics.jsonl")
      .needs(scaling)
      .excludes(tau);
  return scaling;
}

}  // namespace

void add_plan(Command& root) {
  Command plan = root.add("plan", "Predict communication and memory on process grids");
  auto request = std::make_shared<PlanRequest>();
  add_experiment_options(plan, request->config, request->settings,
                         ", as for rondo train; its data are not read", "");
  const Option scaling = add_questions(plan, *request);
  add_link_options(plan, *request);
  add_machine_options(plan, *request, scaling);
  add_format_option(plan, request->format, table_csv_or_json,
                    "table; json: an array of objects; --scaling: csv");
  plan.footer(
      R"(Evaluates the closed forms of Gholami et al. (SPAA 2018) for the model and the global batch
of the configuration: usable grids come first, the fastest before the others; a refused one
says why. --strategy best searches a split for each layer, --scaling predicts an update
scheme; both measure kernels here and keep their times, unless --flops is given. Nothing is
trained, and no data are read.)");
  plan.does([request](const CommandLine& /*line*/) { return run_plan(*request); });
}

}  // namespace rondo::tools
