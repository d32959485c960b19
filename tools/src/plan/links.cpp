// What messages cost, from a file of `rondo bench tune` and from options.

#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "exit_status.hpp"
#include "plan/plan_request.hpp"

namespace rondo::tools {
namespace {

using Levels = std::map<std::string, train::LinkCost>;

train::LinkCost link_of(const nlohmann::json& level) {
  const double beta = level.at("beta_seconds_per_byte").get<double>();
  return {.alpha_seconds = level.at("alpha_seconds").get<double>(),
          .bandwidth = beta > 0.0 ? 1.0 / beta : std::numeric_limits<double>::infinity()};
}

Levels read_levels(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw UsageError("--tuning: " + path.string() + " cannot be read");
  Levels levels;
  try {
    const auto object = nlohmann::json::parse(file);
    for (const auto& level : object.at("levels")) {
      levels[level.at("level").get<std::string>()] = link_of(level);
    }
  } catch (const nlohmann::json::exception&) {
    levels.clear();
  }
  if (levels.contains("node") || levels.contains("fabric")) return levels;
  throw UsageError("--tuning: " + path.string() +
                   " has no levels; let 'rondo bench tune --format json' write it");
}

}  // namespace

void set_links(const PlanRequest& request, train::PlanOptions& plan) {
  if (!request.tuning.empty()) {
    const Levels levels = read_levels(request.tuning);
    plan.fabric = levels.contains("fabric") ? levels.at("fabric") : levels.at("node");
    plan.node = levels.contains("node") ? levels.at("node") : levels.at("fabric");
  }
  for (train::LinkCost* link : {&plan.fabric, &plan.node}) {
    link->alpha_seconds = request.alpha.value_or(link->alpha_seconds);
    link->bandwidth = request.bandwidth.value_or(link->bandwidth);
  }
  plan.node.alpha_seconds = request.node_alpha.value_or(plan.node.alpha_seconds);
  plan.node.bandwidth = request.node_bandwidth.value_or(plan.node.bandwidth);
}

}  // namespace rondo::tools
