#pragma once

#include <chrono>

namespace rondo::transport {
class World;
}

namespace rondo::train {

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
