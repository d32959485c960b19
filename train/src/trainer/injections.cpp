#include "trainer/injections.hpp"

#include <fmt/format.h>

namespace rondo::train {

std::vector<std::string> injections_of(const Experiment& experiment, int nodes) {
  std::vector<std::string> injections;
  for (const auto& [rank, factor] : experiment.inject.slow_ranks) {
    if (factor > 1.0) {
      injections.push_back(fmt::format("rank {} computes {} times as slowly", rank, factor));
    }
  }
  const Experiment::Transport& transport = experiment.transport;
  if (nodes > 1 && transport.latency_us > 0.0) {
    injections.push_back(fmt::format("{} us of latency between nodes", transport.latency_us));
  }
  if (nodes > 1 && transport.bandwidth_gbs > 0.0) {
    injections.push_back(fmt::format("{} GB/s between nodes", transport.bandwidth_gbs));
  }
  return injections;
}

double slowness_of(const Experiment& experiment, int rank) {
  const auto& slow = experiment.inject.slow_ranks;
  const auto found = slow.find(rank);
  return found == slow.end() ? 1.0 : found->second;
}

}  // namespace rondo::train
