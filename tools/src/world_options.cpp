#include "world_options.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

transport::FabricOptions fabric_options(const train::Experiment::Transport& section) {
  transport::FabricOptions options;
  options.name = section.fabric;
  options.interface = section.interface;
  options.fake_nodes = static_cast<int>(section.fake_nodes);
  options.injected_latency = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::micro>(section.latency_us));
  options.injected_bytes_per_second = section.bandwidth_gbs * 1e9;
  options.allreduce = section.allreduce;
  return options;
}

}  // namespace

void report_stall(const transport::Stall& stall) {
  const bool one = stall.missing.size() == 1;
  fmt::print(stderr, "rondo: rank {}: has waited {:.0f} s for rank{} {} in {}\n", stall.rank,
             static_cast<double>(stall.duration.count()) / 1e3, one ? "" : "s",
             fmt::join(stall.missing, ", "), stall.operation);
}

transport::Waiting waiting_from(const std::string& name) {
  if (name == "auto") return transport::Waiting::automatic;
  if (name == "spin") return transport::Waiting::spin;
  if (name == "yield") return transport::Waiting::yield;
  if (name == "block") return transport::Waiting::block;
  throw UsageError(
      fmt::format("there is no way of waiting '{}'; there are: auto, spin, yield, block", name));
}

transport::WorldOptions world_options(const train::Experiment& experiment) {
  transport::WorldOptions options;
  options.waiting = waiting_from(experiment.transport.wait);
  options.deadline = to_milliseconds(experiment.transport.deadline_seconds);
  options.stall_warning = to_milliseconds(experiment.transport.stall_warning_seconds);
  options.on_stall = report_stall;
  options.small_bytes = static_cast<std::size_t>(experiment.transport.small_bytes);
  options.fabric = fabric_options(experiment.transport);
  return options;
}

}  // namespace rondo::tools
