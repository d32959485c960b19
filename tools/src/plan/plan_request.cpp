#include "plan/plan_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include <rondo/sync/scheme_description.hpp>

namespace rondo::tools {
namespace {

std::vector<std::string> names_of_schemes() {
  std::vector<std::string> names;
  for (const sync::SchemeDescription& scheme : sync::schemes()) names.emplace_back(scheme.name);
  return names;
}

void add_job_options(CLI::App& app, PlanRequest& request) {
  app.add_option("config", request.config, "As for rondo train; its data are not read")
      ->required()
      ->type_name("CONFIG");
  app.add_option("-n,--ranks", request.plan.ranks, "Ranks of the job")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("P");
  app.add_option("--set", request.settings, "Override a key: section.key=value; repeatable")
      ->type_name("SETTING")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--ranks-per-node", request.plan.ranks_per_node,
                 "Collectives on two levels; 1: flat")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("R");
}

void add_link_options(CLI::App& app, PlanRequest& request) {
  const train::LinkCost otherwise = request.plan.fabric;
  app.add_option("--alpha", request.alpha, "Seconds a message takes, on all levels")
      ->check(CLI::Range(0.0, 10.0))
      ->default_str(fmt::format("{}", otherwise.alpha_seconds))
      ->type_name("SECONDS");
  app.add_option("--bandwidth", request.bandwidth, "Bytes per second of a rank, on all levels")
      ->check(CLI::Range(1.0, 1e15))
      ->default_str(fmt::format("{:g}", otherwise.bandwidth))
      ->type_name("BYTES/S");
  app.add_option("--node-alpha", request.node_alpha, "Inside a node (default: --alpha)")
      ->check(CLI::Range(0.0, 10.0))
      ->type_name("SECONDS");
  app.add_option("--node-bandwidth", request.node_bandwidth, "Inside a node (default: --bandwidth)")
      ->check(CLI::Range(1.0, 1e15))
      ->type_name("BYTES/S");
  app.add_option("--tuning", request.tuning,
                 "Take all four from what 'rondo bench tune --format json' has written")
      ->type_name("FILE");
}

void add_machine_options(CLI::App& app, PlanRequest& request) {
  app.add_option("--flops", request.plan.flops,
                 "Per second and rank: predicts compute time (default: best and --scaling measure "
                 "kernels here, the others do not predict it)")
      ->check(CLI::Range(1.0, 1e18))
      ->type_name("FLOPS");
  app.add_option("--threads", request.threads,
                 "Of a rank whose kernels are measured (default: train.threads, or 1)")
      ->check(CLI::Range(1, 4096))
      ->type_name("T");
  app.add_option("--measurements", request.measurements,
                 "best: measure splits until so many shapes are measured")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->type_name("M");
  app.add_option("--memory-limit", request.plan.memory_limit,
                 "Refuse grids that need more on a rank, as in 16GiB (default: train.memory_limit)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("BYTES");
}

void add_scaling_options(CLI::App& app, PlanRequest& request) {
  auto* scaling =
      app.add_option("--scaling", request.scaling,
                     "Predict steps on FIRST, 2 FIRST, ... up to LAST ranks, by sample alone")
          ->excludes(app.get_option("--ranks"))
          ->excludes(app.get_option("--strategy"))
          ->type_name("FIRST:LAST");
  app.add_option("--scheme", request.scheme,
                 "synchronous, lazy, k_step, hierarchical or cyclic (default: as configured)")
      ->check(CLI::IsMember(names_of_schemes()))
      ->needs(scaling)
      ->type_name("SCHEME");
  auto* per_rank = app.add_option("--batch-per-rank", request.batch_per_rank,
                                  "Samples of a rank (default: train.global_batch)")
                       ->check(CLI::Range(1, 1 << 30))
                       ->needs(scaling)
                       ->type_name("B");
  app.add_flag("--fixed-global-batch", request.fixed_global_batch,
               "Strong scaling: all ranks share train.global_batch")
      ->needs(scaling)
      ->excludes(per_rank);
  auto* tau = app.add_option("--tau", request.tau, "lazy: iterations of a window, on average")
                  ->check(CLI::Range(1.0, 1e6))
                  ->needs(scaling)
                  ->type_name("TAU");
  app.add_option("--metrics", request.metrics, "lazy: take tau from a run's metrics.jsonl")
      ->needs(scaling)
      ->excludes(tau)
      ->type_name("FILE");
}

}  // namespace

void add_options(CLI::App& app, PlanRequest& request) {
  add_job_options(app, request);
  add_link_options(app, request);
  add_machine_options(app, request);
  app.add_option("--strategy", request.strategy,
                 "batch, model, grid, domain, integrated, all of them, or best: a split for each "
                 "layer")
      ->check(CLI::IsMember({"all", "batch", "model", "grid", "domain", "integrated", "best"}))
      ->capture_default_str()
      ->type_name("STRATEGY");
  add_scaling_options(app, request);
  app.add_option("--format", request.format, "table; json: an array of objects; --scaling: csv")
      ->check(CLI::IsMember({"table", "json", "csv"}))
      ->capture_default_str()
      ->type_name("FORMAT");
}

int measured_threads(const PlanRequest& request, const train::Experiment& experiment) {
  if (request.threads > 0) return request.threads;
  return static_cast<int>(std::max<std::int64_t>(experiment.train.threads, 1));
}

}  // namespace rondo::tools
