#include "plan/best_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plan/milliseconds.hpp"

namespace rondo::tools {
namespace {

using Json = nlohmann::ordered_json;
using train::BestLayer;
using train::BestPlan;
using train::SplitKind;

Json layer_object(const BestLayer& layer) {
  return {{"name", layer.name},
          {"split", split_text(layer.split)},
          {"compute_seconds", layer.compute_seconds},
          {"exchange_seconds", layer.exchange_seconds},
          {"reduction_seconds", layer.reduction_seconds},
          {"redistribution_seconds", layer.redistribution_seconds}};
}

Json plan_object(const BestPlan& plan) {
  Json layers = Json::array();
  for (const BestLayer& layer : plan.layers) layers.push_back(layer_object(layer));
  return {{"strategy", "best"},
          {"ranks", plan.grid.ranks()},
          {"pr", plan.grid.pr},
          {"pc", plan.grid.pc},
          {"communication_seconds", plan.communication_seconds()},
          {"compute_seconds", plan.compute_seconds},
          {"overlapped_seconds", plan.overlapped_seconds},
          {"bytes_per_rank", plan.bytes_per_rank},
          {"refused", plan.refused.empty() ? Json(nullptr) : Json(plan.refused)},
          {"layers", layers}};
}

std::string grid_line(const BestPlan& plan) {
  const std::string begin = fmt::format("{:>5} x {:<5}", plan.grid.pr, plan.grid.pc);
  if (!plan.refused.empty()) return begin + "  refused: " + plan.refused + "\n";
  constexpr double mebibyte = 1 << 20;
  return begin + fmt::format("{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12.1f}\n",
                             milliseconds(plan.seconds()), milliseconds(plan.overlapped_seconds),
                             milliseconds(plan.compute_seconds),
                             milliseconds(plan.exchange_seconds),
                             milliseconds(plan.reduction_seconds),
                             milliseconds(plan.redistribution_seconds),
                             static_cast<double>(plan.bytes_per_rank) / mebibyte);
}

std::string layer_line(const BestLayer& layer) {
  return fmt::format("{:<24}{:<22}{:>12}{:>12}{:>12}{:>12}\n", layer.name, split_text(layer.split),
                     milliseconds(layer.compute_seconds), milliseconds(layer.exchange_seconds),
                     milliseconds(layer.reduction_seconds),
                     milliseconds(layer.redistribution_seconds));
}

}  // namespace

std::string best_as_json(const std::vector<BestPlan>& plans) {
  Json array = Json::array();
  for (const BestPlan& plan : plans) array.push_back(plan_object(plan));
  return array.dump(2) + "\n";
}

std::string best_as_table(const std::vector<BestPlan>& plans) {
  std::string table = fmt::format("{:>5} x {:<5}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "pr",
                                  "pc", "step ms", "overlapped", "compute", "exchange", "reduction",
                                  "relayout", "MiB/rank");
  for (const BestPlan& plan : plans) table += grid_line(plan);
  const BestPlan& first = plans.front();
  if (!first.refused.empty()) return table;
  table += fmt::format("\n{} x {}, layer by layer\n", first.grid.pr, first.grid.pc);
  table += fmt::format("{:<24}{:<22}{:>12}{:>12}{:>12}{:>12}\n", "layer", "split", "compute ms",
                       "exchange", "reduction", "relayout");
  for (const BestLayer& layer : first.layers) table += layer_line(layer);
  return table + "\n" + grid_section(first);
}

}  // namespace rondo::tools
