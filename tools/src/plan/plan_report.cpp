#include "plan/plan_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "plan/milliseconds.hpp"

namespace rondo::tools {
namespace {

using Json = nlohmann::ordered_json;
using train::GridPlan;
using train::LayerPlan;

Json seconds_or_null(const std::optional<double>& seconds) {
  return seconds ? Json(*seconds) : Json(nullptr);
}

std::string grid_line(const GridPlan& plan) {
  constexpr double mebibyte = 1 << 20;
  const std::string compute = plan.compute_seconds ? milliseconds(*plan.compute_seconds) : "-";
  const std::string line =
      fmt::format("{:<11}{:>6}{:>6}{:>18}{:>13}{:>13.1f}", name_of(plan.strategy), plan.pr, plan.pc,
                  milliseconds(plan.communication_seconds), compute,
                  static_cast<double>(plan.bytes_per_rank) / mebibyte);
  return line + (plan.refused.empty() ? "" : "  refused: " + plan.refused) + "\n";
}

std::string split_text(const LayerPlan& layer) {
  if (layer.domain) return fmt::format("domain {} x batch {}", layer.pr, layer.pc);
  if (layer.pr == 1) return fmt::format("batch {}", layer.pc);
  return fmt::format("filters {} x batch {}", layer.pr, layer.pc);
}

std::string layer_line(const LayerPlan& layer) {
  return fmt::format("{:<24}{:<26}{:>18}{:>14}\n", layer.name, split_text(layer),
                     milliseconds(layer.communication_seconds), layer.cheapest_pr);
}

}  // namespace

std::string plans_as_json(const std::vector<GridPlan>& plans) {
  Json array = Json::array();
  for (const GridPlan& plan : plans) {
    array.push_back({{"strategy", std::string(name_of(plan.strategy))},
                     {"ranks", plan.pr * plan.pc},
                     {"pr", plan.pr},
                     {"pc", plan.pc},
                     {"communication_seconds", plan.communication_seconds},
                     {"compute_seconds", seconds_or_null(plan.compute_seconds)},
                     {"bytes_per_rank", plan.bytes_per_rank},
                     {"refused", plan.refused.empty() ? Json(nullptr) : Json(plan.refused)}});
  }
  return array.dump(2) + "\n";
}

std::string plans_as_table(const std::vector<GridPlan>& plans) {
  std::string table = fmt::format("{:<11}{:>6}{:>6}{:>18}{:>13}{:>13}\n", "strategy", "pr", "pc",
                                  "communication ms", "compute ms", "MiB/rank");
  for (const GridPlan& plan : plans) table += grid_line(plan);
  const GridPlan& first = plans.front();
  table += fmt::format("\n{} {} x {}, layer by layer; 'pr alone' is the cheapest for this layer\n",
                       name_of(first.strategy), first.pr, first.pc);
  table += fmt::format("{:<24}{:<26}{:>18}{:>14}\n", "layer", "split over", "communication ms",
                       "pr alone");
  for (const LayerPlan& layer : first.layers) table += layer_line(layer);
  return table;
}

}  // namespace rondo::tools
