#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

namespace rondo::transport {
class World;
}  // namespace rondo::transport

namespace rondo::train {

/// What a run on so many nodes slows down on purpose, in words; every output of the run says so.
[[nodiscard]] std::vector<std::string> injections_of(const Experiment& experiment, int nodes);

/// How many times as long rank `rank` shall take; 1 if it is not slowed down.
[[nodiscard]] double slowness_of(const Experiment& experiment, int rank);

/// Makes a rank compute more slowly than it does, for experiments: [inject] slow_ranks.
class SlowRank {
 public:
  /// A rank that takes `factor` >= 1 times as long; 1 changes nothing.
  SlowRank(transport::World& world, double factor) : world_(world), factor_(factor) {}

  /// Waits factor - 1 times as long as `compute` took without what it spent in the transport.
  /// Communication goes on meanwhile; the CPU is left to others.
  template <typename Compute>
  auto slowed(Compute compute) {
    const Clock::time_point began = Clock::now();
    const std::chrono::nanoseconds transport = in_transport();
    const auto result = compute();
    if (factor_ > 1.0) wait_for(Clock::now() - began - (in_transport() - transport));
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::chrono::nanoseconds in_transport() const;
  void wait_for(std::chrono::nanoseconds computed);

  transport::World& world_;
  double factor_;
};

}  // namespace rondo::train
