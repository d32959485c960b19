// The tables of `rondo plan`: people read milliseconds and MiB, programs get seconds and bytes.

#include "plan/report.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

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

}  // namespace

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

// Per grid people see what a step consists of, and programs get sums and the layers.
Table best_table(const std::vector<BestPlan>& plans) {
  return TableOf(plans)
      .add({.name = "strategy"}, [](const BestPlan&) { return "best"; })
      .add({.name = "ranks"}, [](const BestPlan& plan) { return plan.grid.ranks(); })
      .add({"pr", "pr"}, [](const BestPlan& plan) { return plan.grid.pr; })
      .add({"pc", "pc"}, [](const BestPlan& plan) { return plan.grid.pc; })
      .add(time("", "step ms"), if_usable(&BestPlan::seconds))
      .add(time("", "overlapped"), if_usable(&BestPlan::overlapped_seconds))
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

}  // namespace rondo::tools
