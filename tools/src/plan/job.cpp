// The job that a configuration and the options of `rondo plan` describe: a model, its batch, and
// what links and kernels cost.
//
// Costs of links come from options, from `rondo bench tune`, or from defaults; costs of kernels
// from --flops, or from measurements that are kept in a file. No data are read.

#include "plan/job.hpp"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/variant.hpp>

#include "failure.hpp"
#include "files.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

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
  const std::string text = read_file(path);
  if (text.empty()) {
    throw UsageError("--tuning: " + path.string() +
                     " cannot be read, or is empty; let 'rondo bench tune --format json' write it");
  }
  Tuned tuned;
  try {
    const auto object = nlohmann::json::parse(text);
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

}  // namespace

PlanJob job_of(const PlanRequest& request) {
  std::vector<std::string> settings = request.settings;
  if (!request.scheme.empty()) {
    settings.push_back("update.scheme=" + request.scheme);
    settings = train::settings_of_variant(request.config, settings);
  }
  PlanJob job{.request = request,
              .experiment = train::read_experiment(request.config, settings),
              .model = {},
              .plan = {}};
  job.model = planned_model(job.experiment);
  job.plan = train::plan_options(job.experiment, job.model);
  // Options count more than the configuration.
  job.plan.ranks = request.ranks.value_or(job.plan.ranks);
  job.plan.ranks_per_node = request.plan.ranks_per_node;
  job.plan.port_bandwidth = request.plan.port_bandwidth;
  job.plan.flops = request.plan.flops;
  job.plan.memory_limit = request.memory_limit.value_or(job.plan.memory_limit);
  if (request.threads > 0) job.plan.threads = request.threads;
  job.team = make_openmp_team(job.plan.threads);
  set_links(request, job.experiment.transport.allreduce, job.plan);
  return job;
}

train::ComputeTable table_of(const PlanJob& job) {
  try {
    tensor::require_computable(job.plan.type);
  } catch (const std::runtime_error& error) {
    throw UsageError(fmt::format(
        "train.precision: {}, or plan by --flops, which measures no kernel", error.what()));
  }
  return train::ComputeTable(job.plan.threads, train::kernel_times_file(), job.plan.type,
                             {.optimizer = job.experiment.optimizer, .team = job.team.get()});
}

}  // namespace rondo::tools
