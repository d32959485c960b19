// The answers of `rondo plan`: the library evaluates or searches grids for a job, or predicts
// scaling, and tables show the results: people read milliseconds and MiB, programs get seconds and
// bytes.
//
// Nothing here computes a cost: train/src/plan does, and the tables only show it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>

#include "failure.hpp"
#include "options.hpp"
#include "plan/job.hpp"
#include "say.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

using train::BestLayer;
using train::BestPlan;
using train::GridPlan;
using train::LayerPlan;
using train::ScalingPoint;
using train::Strategy;

constexpr double to_mebibytes = 1.0 / (1 << 20);

// Seconds to programs as `name`, milliseconds to people under `heading`; either may be empty.
Column time(const char* name, const char* heading) {
  return {.name = name, .heading = heading, .decimals = 3, .scale = 1e3};
}

// Why a plan cannot be used, or nothing.
template <class Plan>
std::optional<std::string> refused(const Plan& plan) {
  return plan.refused.empty() ? std::nullopt : std::optional(plan.refused);
}

// A number of a plan that can be used: one that was refused has none to show.
template <class Get>
auto if_usable(Get get) {
  return [get](const BestPlan& plan) {
    return plan.refused.empty() ? std::optional(std::invoke(get, plan)) : std::nullopt;
  };
}

std::string split_of(const LayerPlan& layer) {
  if (layer.domain) return fmt::format("domain {} x batch {}", layer.pr, layer.pc);
  if (layer.pr == 1) return fmt::format("batch {}", layer.pc);
  return fmt::format("filters {} x batch {}", layer.pr, layer.pc);
}

// Names of columns in CSV and JSON are stable; docs/command-line.md says what they mean.

// A row for each grid; seconds of computation are nothing where they were not predicted.
// The numbers of refused grids are shown, too: they tell what the refusal costs.
Table plans_table(const std::vector<GridPlan>& plans) {
  return TableOf(plans)
      .add({"strategy", "strategy", Align::left},
           [](const GridPlan& plan) { return name_of(plan.strategy); })
      .add({.name = "ranks"}, [](const GridPlan& plan) { return plan.pr * plan.pc; })
      .add({"pr", "pr"}, &GridPlan::pr)
      .add({"pc", "pc"}, &GridPlan::pc)
      .add(time("communication_seconds", "communication ms"), &GridPlan::communication_seconds)
      .add(time("compute_seconds", "compute ms"), &GridPlan::compute_seconds)
      .add({.name = "bytes_per_rank", .heading = "MiB/rank", .decimals = 1, .scale = to_mebibytes},
           &GridPlan::bytes_per_rank)
      .add({"refused", "refused", Align::left}, refused<GridPlan>);
}

Table layers_table(const std::vector<LayerPlan>& layers) {
  return TableOf(layers)
      .add({.heading = "layer", .align = Align::left}, &LayerPlan::name)
      .add({.heading = "split over", .align = Align::left}, split_of)
      .add(time("", "communication ms"), &LayerPlan::communication_seconds)
      .add({.heading = "pr alone"}, &LayerPlan::cheapest_pr);
}

Table layers_table(const std::vector<BestLayer>& layers) {
  return TableOf(layers)
      .add({"name", "layer", Align::left}, &BestLayer::name)
      .add({"split", "split", Align::left},
           [](const BestLayer& layer) { return split_text(layer.split); })
      .add(time("compute_seconds", "compute ms"), &BestLayer::compute_seconds)
      .add(time("exchange_seconds", "exchange"), &BestLayer::exchange_seconds)
      .add(time("reduction_seconds", "reduction"), &BestLayer::reduction_seconds)
      .add(time("redistribution_seconds", "relayout"), &BestLayer::redistribution_seconds);
}

// Per grid people see what a step consists of, and programs get sums and the layers.
Table best_table(const std::vector<BestPlan>& plans) {
  return TableOf(plans)
      .add({.name = "strategy"}, [](const BestPlan&) { return "best"; })
      .add({.name = "ranks"}, [](const BestPlan& plan) { return plan.grid.ranks(); })
      .add({"pr", "pr"}, [](const BestPlan& plan) { return plan.grid.pr; })
      .add({"pc", "pc"}, [](const BestPlan& plan) { return plan.grid.pc; })
      .add(time("", "step ms"), if_usable(&BestPlan::overlapped_seconds))
      .add(time("", "compute"), if_usable(&BestPlan::compute_seconds))
      .add(time("", "exchange"), if_usable(&BestPlan::exchange_seconds))
      .add(time("", "reduction"), if_usable(&BestPlan::reduction_seconds))
      .add(time("", "relayout"), if_usable(&BestPlan::redistribution_seconds))
      .add({.heading = "MiB/rank", .decimals = 1, .scale = to_mebibytes},
           if_usable(&BestPlan::bytes_per_rank))
      .add({.name = "communication_seconds"}, if_usable(&BestPlan::communication_seconds))
      .add({.name = "compute_seconds"}, if_usable(&BestPlan::compute_seconds))
      .add({.name = "overlapped_seconds"}, if_usable(&BestPlan::overlapped_seconds))
      .add({.name = "update_seconds"}, if_usable(&BestPlan::update_seconds))
      .add({.name = "bytes_per_rank"}, if_usable(&BestPlan::bytes_per_rank))
      .add({"refused", "refused", Align::left}, refused<BestPlan>)
      .add({.name = "layers"}, [](const BestPlan& plan) { return layers_table(plan.layers); });
}

Table scaling_table(const std::vector<ScalingPoint>& points) {
  return TableOf(points)
      .add({"ranks", "ranks"}, &ScalingPoint::ranks)
      .add({"global_batch", "batch"}, &ScalingPoint::global_batch)
      .add(time("step_seconds", "step ms"), &ScalingPoint::step_seconds)
      .add(time("compute_seconds", "compute ms"), &ScalingPoint::compute_seconds)
      .add(time("exposed_seconds", "exposed ms"), &ScalingPoint::exposed_seconds)
      .add({.name = "images_per_second", .heading = "images/s", .decimals = 1},
           &ScalingPoint::images_per_second)
      .add({.name = "speedup", .heading = "speed-up", .decimals = 2}, &ScalingPoint::speedup)
      .add({.name = "efficiency", .heading = "efficiency", .decimals = 3},
           &ScalingPoint::efficiency);
}
constexpr std::array closed_forms = {Strategy::batch, Strategy::model, Strategy::grid,
                                     Strategy::domain, Strategy::integrated};

std::string text_of(const train::LinkCost& link) {
  return fmt::format("{:.3g} us and {:.3g} GB/s", 1e6 * link.alpha_seconds, 1e-9 * link.bandwidth);
}

// The links that messages of so many ranks take.
std::string text_of_links(const train::PlanOptions& plan, int ranks) {
  if (ranks <= plan.ranks_per_node) return text_of(plan.node);
  const std::string between = text_of(plan.fabric);
  const std::string within = text_of(plan.node);
  if (plan.ranks_per_node == 1 || within == between) return between;
  return fmt::format("within nodes {}, between {}", within, between);
}

// Prints what the table below was computed for.
void print_title(const PlanJob& job) {
  fmt::print("{}, {} samples a step on {} ranks, {} per node; {}\n", job.model.name, job.plan.batch,
             job.plan.ranks, job.plan.ranks_per_node, text_of_links(job.plan, job.plan.ranks));
}

}  // namespace

void plan_by_forms(const PlanJob& job) {
  std::vector<train::GridPlan> plans;
  for (const Strategy strategy : closed_forms) {
    const std::string& wanted = job.request.strategy;
    if (wanted != "all" && wanted != name_of(strategy)) continue;
    std::ranges::move(train::plan(job.model, strategy, job.plan), std::back_inserter(plans));
  }
  // All strategies in one order: the reader wants the fastest grid, whatever it is called.
  train::rank(plans);
  const Table table = plans_table(plans);
  if (job.request.format == Format::json) {
    fmt::print("{}", table.json());
    return;
  }
  print_title(job);
  const train::GridPlan& first = plans.front();
  fmt::print("{}\n{} {} x {}, layer by layer; 'pr alone' is the cheapest for this layer\n{}",
             table.text(), name_of(first.strategy), first.pr, first.pc,
             layers_table(first.layers).text());
}

namespace {

// Times that cannot be kept are no reason to keep back the answer that they are for.
void keep_times(const train::ComputeTable& table) {
  try {
    table.save();
  } catch (const std::runtime_error& error) {
    say("rondo: the measured times are not kept, and will be measured again: {}; set "
        "XDG_CACHE_HOME to a folder that can be written\n",
        error.what());
  }
}

// Costs of kernels from a rate, or measured where the search needs them.
std::vector<train::BestPlan> best_plans(const PlanJob& job) {
  if (job.plan.flops > 0.0) {
    return train::best_plans(job.model, job.plan, train::FlopRate(job.plan.flops));
  }
  train::ComputeTable table = table_of(job);
  std::vector<train::BestPlan> plans =
      train::measured_best_plans(job.model, job.plan, table, job.request.measurements);
  keep_times(table);
  return plans;
}

}  // namespace

void plan_best(const PlanJob& job) {
  const std::vector<train::BestPlan> plans = best_plans(job);
  const Table table = best_table(plans);
  if (job.request.format == Format::json) {
    fmt::print("{}", table.json());
    return;
  }
  print_title(job);
  fmt::print("{}", table.text());
  const train::BestPlan& first = plans.front();
  // Where no grid fits there is nothing to paste into a configuration.
  if (!first.refused.empty()) return;
  fmt::print("\n{} x {}, layer by layer\n{}\n{}", first.grid.pr, first.grid.pc,
             layers_table(first.layers).text(),
             grid_section(first, job.experiment.grid.batch_norm));
}

namespace {

// "FIRST:LAST" Whether the numbers make sense, the library says.
void read_range(const std::string& text, train::ScalingOptions& options) {
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, options.first);
  // from_chars() stops at the colon, or anywhere else.
  const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  if (colon) {
    const auto last = std::from_chars(first.ptr + 1, end, options.last);
    if (last.ec == std::errc() && last.ptr == end) return;
  }
  throw UsageError("--scaling: " + text + " is no range of ranks; write one like 1:4096");
}

// How long windows and rounds are depends on the training, so their mean must be given or have been
// measured.
double tau_of(const PlanRequest& request, const train::Experiment& experiment) {
  if (!request.metrics.empty()) return train::mean_window(request.metrics);
  if (request.tau > 0.0) return request.tau;
  const std::string what =
      sync::describe_scheme(experiment.update.scheme).windows
          ? "--scheme lazy needs the mean iterations of a window"
          : fmt::format("update.period_policy = \"{}\" needs the mean steps of a round",
                        train::chosen(experiment, "update.period_policy"));
  throw UsageError(what + ": --tau, or --metrics with a run's metrics.jsonl");
}

void refuse_tau(const PlanRequest& request, const train::Experiment& experiment) {
  if (request.tau == 0.0 && request.metrics.empty()) return;
  throw UsageError(fmt::format(
      "--tau and --metrics have no effect with update.scheme = \"{}\" and update.period_policy = "
      "\"{}\"; leave them out",
      experiment.update.scheme, train::chosen(experiment, "update.period_policy")));
}

train::ScalingOptions scaling_options(const PlanJob& job) {
  const PlanRequest& request = job.request;
  train::ScalingOptions options{.job = job.plan};
  read_range(request.scaling, options);
  if (request.fixed_global_batch) options.fixed = train::FixedBatch::global;
  if (request.batch_per_rank > 0) options.job.batch = request.batch_per_rank;
  const train::Experiment::Update& update = job.experiment.update;
  if (train::has_mean_period(update)) {
    options.tau = tau_of(request, job.experiment);
  } else {
    refuse_tau(request, job.experiment);
  }
  return options;
}

// Without a rate all kernels that any number of ranks needs are measured first, and kept.
std::vector<train::ScalingPoint> scaling_points(const PlanJob& job,
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
  const std::vector<std::int64_t> samples = train::samples_of_ranks(options);
  table.measure_step(job.model, std::ranges::min(samples), std::ranges::max(samples));
  keep_times(table);
  return train::predict_scaling(job.model, update, options, table);
}

}  // namespace

void predict_scaling(const PlanJob& job) {
  const train::ScalingOptions options = scaling_options(job);
  const std::vector<train::ScalingPoint> points = scaling_points(job, options);
  if (job.request.format == Format::text) {
    const bool strong = options.fixed == train::FixedBatch::global;
    fmt::print("{}, {}, {} samples {}; {} per node; {}\n", job.model.name,
               job.experiment.update.scheme, options.job.batch,
               strong ? "of all ranks (strong scaling)" : "of each rank (weak scaling)",
               job.plan.ranks_per_node, text_of_links(job.plan, points.back().ranks));
  }
  fmt::print("{}", scaling_table(points).in(job.request.format));
}

}  // namespace rondo::tools
