#include <rondo/train/plan.hpp>

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/sync/scheme_description.hpp>
#include <rondo/train/compute_table.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/optimizer_words.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>

#include "command.hpp"
#include "exit_status.hpp"
#include "plan/best_report.hpp"
#include "plan/plan_report.hpp"
#include "plan/plan_request.hpp"
#include "plan/planned_run.hpp"
#include "plan/scaling_report.hpp"

namespace rondo::tools {
namespace {

using train::Strategy;

constexpr std::array closed_forms = {Strategy::batch, Strategy::model, Strategy::grid,
                                     Strategy::domain, Strategy::integrated};

// A job: what is asked, and what the configuration says of it.
struct Job {
  const PlanRequest& request;
  train::Experiment experiment;
  train::Model model;
  train::PlanOptions plan;
};

Job job_of(const PlanRequest& request) {
  std::vector<std::string> settings = request.settings;
  if (!request.scheme.empty()) settings.push_back("update.scheme=" + request.scheme);
  Job job{.request = request,
          .experiment = train::read_experiment(request.config, settings),
          .model = {},
          .plan = request.plan};
  job.model = planned_model(job.experiment);
  job.plan.batch = job.experiment.train.global_batch;
  job.plan.optimizer_words = train::optimizer_words(job.experiment.optimizer);
  job.plan.pieces = static_cast<int>(job.experiment.train.accumulate);
  job.plan.threads = static_cast<int>(std::max<std::int64_t>(job.experiment.train.threads, 1));
  if (job.plan.memory_limit == 0) {
    job.plan.memory_limit = static_cast<std::uint64_t>(job.experiment.train.memory_limit);
  }
  set_links(request, job.plan);
  return job;
}

void print_title(const Job& job) {
  fmt::print("{}, {} samples a step on {} ranks, {} per node; {:.3g} us and {:.3g} GB/s\n",
             job.model.name, job.plan.batch, job.plan.ranks, job.plan.ranks_per_node,
             1e6 * job.plan.fabric.alpha_seconds, 1e-9 * job.plan.fabric.bandwidth);
}

void plan_by_forms(const Job& job) {
  std::vector<train::GridPlan> plans;
  for (const Strategy strategy : closed_forms) {
    const std::string& wanted = job.request.strategy;
    if (wanted != "all" && wanted != name_of(strategy)) continue;
    std::ranges::move(train::plan(job.model, strategy, job.plan), std::back_inserter(plans));
  }
  train::rank(plans);
  if (job.request.format == "json") {
    fmt::print("{}", plans_as_json(plans));
    return;
  }
  print_title(job);
  fmt::print("{}", plans_as_table(plans));
}

train::ComputeTable table_of(const Job& job) {
  return train::ComputeTable(measured_threads(job.request, job.experiment), times_file());
}

std::vector<train::BestPlan> best_plans(const Job& job) {
  if (job.plan.flops > 0.0) {
    return train::best_plans(job.model, job.plan, train::FlopRate(job.plan.flops));
  }
  train::ComputeTable table = table_of(job);
  std::vector<train::BestPlan> plans =
      train::measured_best_plans(job.model, job.plan, table, job.request.measurements);
  table.save();
  return plans;
}

void plan_best(const Job& job) {
  const std::vector<train::BestPlan> plans = best_plans(job);
  if (job.request.format == "json") {
    fmt::print("{}", best_as_json(plans));
    return;
  }
  print_title(job);
  fmt::print("{}", best_as_table(plans));
}

// "FIRST:LAST"
void read_range(const std::string& text, train::ScalingOptions& options) {
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, options.first);
  const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  if (colon) {
    const auto last = std::from_chars(first.ptr + 1, end, options.last);
    if (last.ec == std::errc() && last.ptr == end) return;
  }
  throw UsageError("--scaling: " + text + " is no range of ranks; write one like 1:4096");
}

double tau_of(const PlanRequest& request) {
  if (!request.metrics.empty()) return train::mean_window(request.metrics);
  if (request.tau > 0.0) return request.tau;
  throw UsageError(
      "--scheme lazy needs the mean iterations of a window: --tau, or --metrics with a run's "
      "metrics.jsonl");
}

train::ScalingOptions scaling_options(const Job& job) {
  const PlanRequest& request = job.request;
  train::ScalingOptions options{.batch = job.experiment.train.global_batch,
                                .fabric = job.plan.fabric,
                                .node = job.plan.node,
                                .ranks_per_node = job.plan.ranks_per_node,
                                .optimizer_words = job.plan.optimizer_words};
  read_range(request.scaling, options);
  if (request.fixed_global_batch) options.fixed = train::FixedBatch::global;
  if (request.batch_per_rank > 0) options.batch = request.batch_per_rank;
  if (sync::describe_scheme(job.experiment.update.scheme).windows) options.tau = tau_of(request);
  return options;
}

std::vector<train::ScalingPoint> scaling_points(const Job& job,
                                                const train::ScalingOptions& options) {
  const train::Experiment::Update& update = job.experiment.update;
  if (job.plan.flops > 0.0) {
    return train::predict_scaling(job.model, update, options, train::FlopRate(job.plan.flops));
  }
  train::ComputeTable table = table_of(job);
  for (const std::int64_t samples : train::samples_of_ranks(options)) {
    for (const train::LocalWork& work : train::unsplit_work(job.model, samples)) {
      table.measure(work);
    }
  }
  table.measure_update(train::layout_of(job.model).parameter_count);
  table.save();
  return train::predict_scaling(job.model, update, options, table);
}

void predict_scaling(const Job& job) {
  const train::ScalingOptions options = scaling_options(job);
  const std::vector<train::ScalingPoint> points = scaling_points(job, options);
  if (job.request.format == "json") {
    fmt::print("{}", scaling_as_json(points));
  } else if (job.request.format == "csv") {
    fmt::print("{}", scaling_as_csv(points));
  } else {
    const bool strong = options.fixed == train::FixedBatch::global;
    fmt::print("{}, {}, {} samples {}; {} per node; {:.3g} us and {:.3g} GB/s\n", job.model.name,
               job.experiment.update.scheme, options.batch,
               strong ? "of all ranks (strong scaling)" : "of each rank (weak scaling)",
               options.ranks_per_node, 1e6 * options.fabric.alpha_seconds,
               1e-9 * options.fabric.bandwidth);
    fmt::print("{}", scaling_as_table(points));
  }
}

int run_plan(const PlanRequest& request, bool has_ranks) {
  const bool scaling = !request.scaling.empty();
  if (!scaling && !has_ranks) {
    throw UsageError("--ranks is required, or --scaling with a range of them");
  }
  if (!scaling && request.format == "csv") throw UsageError("--format csv is for --scaling");
  const Job job = job_of(request);
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

}  // namespace

void add_plan(CLI::App& app, int& status) {
  CLI::App* plan = app.add_subcommand("plan", "Predict communication and memory on process grids");
  auto request = std::make_shared<PlanRequest>();
  add_options(*plan, *request);
  plan->footer(
      "Evaluates the closed forms of Gholami et al. (SPAA 2018) for the model and the global "
      "batch\n"
      "of the configuration: usable grids come first, the fastest before the others; a refused "
      "one\n"
      "says why. --strategy best searches a split for each layer, --scaling predicts an update\n"
      "scheme; both measure kernels here and keep their times, unless --flops is given. Nothing "
      "is\n"
      "trained, and no data are read.");
  plan->callback(
      [plan, &status, request] { status = run_plan(*request, plan->count("--ranks") > 0); });
}

}  // namespace rondo::tools
