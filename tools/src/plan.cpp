// `rondo plan`: predicts what a training run would cost on many ranks, without training.
//
// A configuration becomes a Job: a model, its batch, and what links and kernels cost. The library
// evaluates or searches grids for it, or predicts scaling, and tables show the results: people read
// milliseconds and MiB, programs get seconds and bytes. Costs of links come from options, from
// `rondo bench tune`, or from defaults; costs of kernels from --flops, or from measurements that
// are kept in a file.
//
// Nothing here computes a cost: train/src/plan does, and the tables only show it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/tensor/data_type.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>
#include <rondo/train/variant.hpp>

#include "failure.hpp"
#include "options.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

using train::BestLayer;
using train::BestPlan;
using train::GridPlan;
using train::LayerPlan;
using train::ScalingPoint;

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
      .add({.name = "communication_seconds"}, &BestPlan::communication_seconds)
      .add({.name = "compute_seconds"}, &BestPlan::compute_seconds)
      .add({.name = "overlapped_seconds"}, &BestPlan::overlapped_seconds)
      .add({.name = "bytes_per_rank"}, &BestPlan::bytes_per_rank)
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

using train::Strategy;

// What `rondo plan` is asked.
struct PlanRequest {
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
  std::string strategy = "all";
  Format format = Format::text;
  train::PlanOptions plan = {};
  std::optional<int> ranks = {};
  std::optional<double> alpha = {};
  std::optional<double> bandwidth = {};
  std::optional<double> node_alpha = {};
  std::optional<double> node_bandwidth = {};
  std::filesystem::path tuning = {};  // what `rondo bench tune --format json` wrote
  int threads = 0;                    // of kernels that are measured; 0: as configured
  int measurements = 200;             // of shapes, by --strategy best
  std::string scaling = {};           // "FIRST:LAST"; empty: grids are asked for
  std::string scheme = {};            // empty: as configured
  std::int64_t batch_per_rank = 0;
  bool fixed_global_batch = false;
  double tau = 0.0;
  std::filesystem::path metrics = {};
};

using Levels = std::map<std::string, train::LinkCost>;

// A level as `rondo bench tune` writes it.
train::LinkCost link_of(const nlohmann::json& level) {
  const double beta = level.at("beta_seconds_per_byte").get<double>();
  // The tuning gives seconds for a byte, the planner wants bytes in a second. A slope of 0 is a
  // link on which size does not matter.
  return {.alpha_seconds = level.at("alpha_seconds").get<double>(),
          .bandwidth = beta > 0.0 ? 1.0 / beta : std::numeric_limits<double>::infinity()};
}

// What was measured: what messages cost at the levels "node" and "fabric", or at one of them, and
// the best table of algorithms, which is empty for one node.
struct Tuned {
  Levels levels = {};
  std::string allreduce = {};
};

Tuned read_tuning(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw UsageError("--tuning: " + path.string() + " cannot be read");
  Tuned tuned;
  try {
    const auto object = nlohmann::json::parse(file);
    for (const auto& level : object.at("levels")) {
      tuned.levels[level.at("level").get<std::string>()] = link_of(level);
    }
    tuned.allreduce = object.value("allreduce", "");
  } catch (const nlohmann::json::exception&) {
    tuned.levels.clear();
  }
  // A broken file and one of another kind are the same mistake to the user.
  if (tuned.levels.contains("node") || tuned.levels.contains("fabric")) return tuned;
  throw UsageError("--tuning: " + path.string() +
                   " has no levels; let 'rondo bench tune --format json' write it");
}

transport::AllreducePaths paths_of(const std::string& table) {
  try {
    return transport::AllreducePaths(table);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("transport.allreduce: ") + error.what());
  }
}

// Sets what messages cost: as measured by --tuning, but for what options say; where nothing does,
// as train::LinkCost says. A job on one node says nothing of others, and the reverse: both levels
// are then alike. `allreduce` is the table of the configuration, which a run would take; if it is
// empty, that of the tuning counts.
void set_links(const PlanRequest& request, std::string allreduce, train::PlanOptions& plan) {
  if (!request.tuning.empty()) {
    const auto [levels, tuned] = read_tuning(request.tuning);
    if (allreduce.empty()) allreduce = tuned;
    plan.fabric = levels.contains("fabric") ? levels.at("fabric") : levels.at("node");
    plan.node = levels.contains("node") ? levels.at("node") : levels.at("fabric");
  }
  for (train::LinkCost* link : {&plan.fabric, &plan.node}) {
    link->alpha_seconds = request.alpha.value_or(link->alpha_seconds);
    link->bandwidth = request.bandwidth.value_or(link->bandwidth);
  }
  plan.paths = paths_of(allreduce);
  plan.node.alpha_seconds = request.node_alpha.value_or(plan.node.alpha_seconds);
  plan.node.bandwidth = request.node_bandwidth.value_or(plan.node.bandwidth);
}

// The model that the experiment trains, for its images, without reading any.
train::Model planned_model(const train::Experiment& experiment) {
  // The shape follows from the configuration alone; of a folder the classes are counted if it is
  // there.
  const train::DatasetShape images = train::dataset_shape(experiment.data);
  try {
    return train::model_of(experiment, images.image, images.classes);
  } catch (const std::invalid_argument& error) {
    throw UsageError("model.name: " + experiment.model.name + " does not fit the images of " +
                     experiment.data.name + ": " + error.what());
  }
}

// Threads of a rank whose kernels are measured.
int measured_threads(const PlanRequest& request, const train::Experiment& experiment) {
  if (request.threads > 0) return request.threads;
  return static_cast<int>(std::max<std::int64_t>(experiment.train.threads, 1));
}

constexpr std::array closed_forms = {Strategy::batch, Strategy::model, Strategy::grid,
                                     Strategy::domain, Strategy::integrated};

// A job: what is asked, and what the configuration says of it.
struct Job {
  const PlanRequest& request;
  train::Experiment experiment;
  train::Model model;
  train::PlanOptions plan;
};

train::BatchNormScope scope_called(const std::string& name) {
  if (name == "replica") return train::BatchNormScope::replica;
  return name == "all" ? train::BatchNormScope::all : train::BatchNormScope::rank;
}

tensor::DataType type_called(const std::string& precision) {
  return precision == "bf16" ? tensor::DataType::bf16 : tensor::DataType::f32;
}

// Reads the configuration, and adds what it says to what was asked.
Job job_of(const PlanRequest& request) {
  std::vector<std::string> settings = request.settings;
  if (!request.scheme.empty()) {
    settings.push_back("update.scheme=" + request.scheme);
    settings = train::settings_of_variant(request.config, settings);
  }
  Job job{.request = request,
          .experiment = train::read_experiment(request.config, settings),
          .model = {},
          .plan = request.plan};
  job.plan.ranks = request.ranks.value_or(job.plan.ranks);
  job.model = planned_model(job.experiment);
  job.plan.batch = job.experiment.train.global_batch;
  job.plan.optimizer_elements = train::optimizer_elements(job.experiment.optimizer);
  job.plan.micro_batches = static_cast<int>(job.experiment.train.accumulate);
  job.plan.threads = static_cast<int>(std::max<std::int64_t>(job.experiment.train.threads, 1));
  job.plan.type = type_called(job.experiment.train.precision);
  job.plan.gradient_type = type_called(job.experiment.train.reduce_precision);
  job.plan.bucket_bytes = job.experiment.update.bucket_bytes;
  job.plan.batch_norm = scope_called(job.experiment.grid.batch_norm);
  job.plan.update_bytes = train::update_memory(job.experiment, job.model);
  // The option counts more than the configuration.
  if (job.plan.memory_limit == 0) {
    job.plan.memory_limit = static_cast<std::uint64_t>(job.experiment.train.memory_limit);
  }
  set_links(request, job.experiment.transport.allreduce, job.plan);
  return job;
}

// What the table below it was computed for.
void print_title(const Job& job) {
  fmt::print("{}, {} samples a step on {} ranks, {} per node; {:.3g} us and {:.3g} GB/s\n",
             job.model.name, job.plan.batch, job.plan.ranks, job.plan.ranks_per_node,
             1e6 * job.plan.fabric.alpha_seconds, 1e-9 * job.plan.fabric.bandwidth);
}

// All closed forms, or the one that was asked for, usable grids first.
void plan_by_forms(const Job& job) {
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

// Measured times of kernels; those that are in the file are not measured again.
train::ComputeTable table_of(const Job& job) {
  try {
    tensor::require_computable(job.plan.type);
  } catch (const std::runtime_error& error) {
    throw UsageError(fmt::format(
        "train.precision: {}, or plan by --flops, which measures no kernel", error.what()));
  }
  return train::ComputeTable(measured_threads(job.request, job.experiment),
                             train::kernel_times_file(), job.plan.type);
}

// Costs of kernels from a rate, or measured where the search needs them.
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

// Ends with the [grid] section that makes a run train so.
void plan_best(const Job& job) {
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
             layers_table(first.layers).text(), grid_section(first));
}

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
double tau_of(const PlanRequest& request, const train::Experiment::Update& update) {
  if (!request.metrics.empty()) return train::mean_window(request.metrics);
  if (request.tau > 0.0) return request.tau;
  const std::string what =
      sync::describe_scheme(update.scheme).windows
          ? "--scheme lazy needs the mean iterations of a window"
          : fmt::format("update.period_policy = \"{}\" needs the mean steps of a round",
                        update.period_policy);
  throw UsageError(what + ": --tau, or --metrics with a run's metrics.jsonl");
}

train::ScalingOptions scaling_options(const Job& job) {
  const PlanRequest& request = job.request;
  train::ScalingOptions options{.batch = job.experiment.train.global_batch,
                                .fabric = job.plan.fabric,
                                .node = job.plan.node,
                                .ranks_per_node = job.plan.ranks_per_node,
                                .port_bandwidth = job.plan.port_bandwidth,
                                .paths = job.plan.paths,
                                .optimizer_elements = job.plan.optimizer_elements,
                                .gradient_type = job.plan.gradient_type};
  read_range(request.scaling, options);
  if (request.fixed_global_batch) options.fixed = train::FixedBatch::global;
  if (request.batch_per_rank > 0) options.batch = request.batch_per_rank;
  const train::Experiment::Update& update = job.experiment.update;
  if (train::has_mean_period(update)) options.tau = tau_of(request, update);
  return options;
}

// Without a rate all kernels that any number of ranks needs are measured first, and kept.
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
  const std::vector<std::int64_t> samples = train::samples_of_ranks(options);
  table.measure_step(job.model, std::ranges::min(samples), std::ranges::max(samples));
  table.save();
  return train::predict_scaling(job.model, update, options, table);
}

// Prints the prediction; people are also told what it was made for.
void predict_scaling(const Job& job) {
  const train::ScalingOptions options = scaling_options(job);
  const std::vector<train::ScalingPoint> points = scaling_points(job, options);
  if (job.request.format == Format::text) {
    const bool strong = options.fixed == train::FixedBatch::global;
    fmt::print("{}, {}, {} samples {}; {} per node; {:.3g} us and {:.3g} GB/s\n", job.model.name,
               job.experiment.update.scheme, options.batch,
               strong ? "of all ranks (strong scaling)" : "of each rank (weak scaling)",
               options.ranks_per_node, 1e6 * options.fabric.alpha_seconds,
               1e-9 * options.fabric.bandwidth);
  }
  fmt::print("{}", scaling_table(points).in(job.request.format));
}

// The library throws invalid_argument for what cannot be planned: a mistake of the user here.
int run_plan(const PlanRequest& request) {
  const bool scaling = !request.scaling.empty();
  if (!scaling && !request.ranks) {
    throw UsageError("--ranks is required, or --scaling with a range of them");
  }
  // Grids have layers within them, which no line of CSV holds.
  if (!scaling && request.format == Format::csv) throw UsageError("--format csv is for --scaling");
  // Outside of the try block: its errors have types of their own.
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
  command.option("--alpha", request.alpha, "Seconds a message takes, on all levels")
      .range(0.0, 10.0)
      .with_default(fmt::format("{}", otherwise.alpha_seconds))
      .value("SECONDS");
  command.option("--bandwidth", request.bandwidth, "Bytes per second of a rank, on all levels")
      .range(1.0, 1e15)
      .with_default(fmt::format("{:g}", otherwise.bandwidth))
      .value("BYTES/S");
  command.option("--node-alpha", request.node_alpha, "Inside a node (default: --alpha)")
      .range(0.0, 10.0)
      .value("SECONDS");
  command.option("--node-bandwidth", request.node_bandwidth, "Inside a node (default: --bandwidth)")
      .range(1.0, 1e15)
      .value("BYTES/S");
  command
      .option("--port-bandwidth", request.plan.port_bandwidth,
              "Of all ranks of a node together, to others (default: no limit)")
      .range(1.0, 1e15)
      .value("BYTES/S");
  command
      .option("--tuning", request.tuning,
              "Take the first four from what 'rondo bench tune --format json' has written")
      .value("FILE");
}

// What a rank computes with, and how much memory it has.
void add_machine_options(Command& command, PlanRequest& request) {
  command
      .option("--ranks-per-node", request.plan.ranks_per_node, "Collectives on two levels; 1: flat")
      .range(1, 1 << 20)
      .with_default()
      .value("R");
  command
      .option("--flops", request.plan.flops,
              "Per second and rank: predicts compute time (default: best and --scaling measure "
              "kernels here, the others do not predict it)")
      .range(1.0, 1e18)
      .value("FLOPS");
  command
      .option("--threads", request.threads,
              "Of a rank whose kernels are measured (default: train.threads, or 1)")
      .range(1, 4096)
      .value("T");
  command
      .option("--measurements", request.measurements,
              "best: measure splits until so many shapes are measured")
      .range(1, 1'000'000)
      .with_default()
      .value("M");
  command
      .bytes("--memory-limit", request.plan.memory_limit,
             "Refuse grids that need more on a rank, as in 16GiB (default: train.memory_limit)")
      .value("BYTES");
}

// --ranks and --strategy ask about grids, --scaling about numbers of ranks.
void add_questions(Command& command, PlanRequest& request) {
  const Option ranks =
      command.option("-n,--ranks", request.ranks, "Ranks of the job").range(1, 1 << 20).value("P");
  const Option strategy = command
                              .choice("--strategy", request.strategy, strategies,
                                      "batch, model, grid, domain, integrated, all of them, or "
                                      "best: a split for each layer")
                              .value("STRATEGY");
  const Option scaling =
      command
          .option("--scaling", request.scaling,
                  "Predict steps on FIRST, 2 FIRST, ... up to LAST ranks, by sample alone")
          .excludes(ranks)
          .excludes(strategy)
          .value("FIRST:LAST");
  command
      .choice("--scheme", request.scheme, schemes(),
              "synchronous, sharded, lazy, k_step, hierarchical or cyclic (default: as configured)")
      .needs(scaling)
      .value("SCHEME");
  const Option per_rank = command
                              .option("--batch-per-rank", request.batch_per_rank,
                                      "Samples of a rank (default: train.global_batch)")
                              .range(1, 1 << 30)
                              .needs(scaling)
                              .value("B");
  command
      .flag("--fixed-global-batch", request.fixed_global_batch,
            "Strong scaling: all ranks share train.global_batch")
      .needs(scaling)
      .excludes(per_rank);
  const Option tau =
      command
          .option(
              "--tau", request.tau,
              "lazy: iterations of a window, on average; with a period policy: steps of a round")
          .range(1.0, 1e6)
          .needs(scaling)
          .value("TAU");
  command.option("--metrics", request.metrics, "Take tau from a run's metrics.jsonl")
      .needs(scaling)
      .excludes(tau)
      .value("FILE");
}

}  // namespace

void add_plan(Command& root) {
  Command plan = root.add("plan", "Predict communication and memory on process grids");
  auto request = std::make_shared<PlanRequest>();
  add_experiment_options(plan, request->config, request->settings,
                         ", as for rondo train; its data are not read", "");
  add_questions(plan, *request);
  add_link_options(plan, *request);
  add_machine_options(plan, *request);
  add_format_option(plan, request->format, table_csv_or_json,
                    "table; json: an array of objects; --scaling: csv");
  plan.footer(
      "Evaluates the closed forms of Gholami et al. (SPAA 2018) for the model and the global "
      "batch\n"
      "of the configuration: usable grids come first, the fastest before the others; a refused "
      "one\n"
      "says why. --strategy best searches a split for each layer, --scaling predicts an update\n"
      "scheme; both measure kernels here and keep their times, unless --flops is given. Nothing "
      "is\n"
      "trained, and no data are read.");
  plan.does([request](const CommandLine& /*line*/) { return run_plan(*request); });
}

}  // namespace rondo::tools
