// What an experiment slows down on purpose, to see how a scheme bears slow ranks and slow networks.
// Ranks are slowed by sleeping after they have computed; networks by the transport.

#include "trainer/injection.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include <rondo/transport/world.hpp>

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

namespace {

// Short enough for peers that wait for this rank's part of a reduction.
constexpr std::chrono::nanoseconds slice = std::chrono::microseconds(200);

}  // namespace

std::chrono::nanoseconds SlowRank::in_transport() const {
  const transport::Counters counters = world_.counters();
  return counters.waiting + counters.communicating;
}

void SlowRank::wait_for(std::chrono::nanoseconds computed) {
  const auto extra = std::chrono::duration_cast<Clock::duration>((factor_ - 1.0) * computed);
  const Clock::time_point end = Clock::now() + extra;
  for (Clock::time_point now = Clock::now(); now < end; now = Clock::now()) {
    world_.progress();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(slice, end - now));
  }
}

}  // namespace rondo::train
