#pragma once

#include <chrono>
#include <cstdint>

#include <rondo/transport/counters.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// Where the time of one epoch's training went on this rank, and what it moved.
struct Traffic {
  double seconds = 0.0;
  double communicating = 0.0;  ///< seconds in transport calls after the last rank's arrival
  double waiting = 0.0;        ///< seconds in transport calls before it
  double bytes = 0.0;          ///< moved between ranks by the update scheme

  [[nodiscard]] double communication_share() const noexcept {
    return seconds > 0.0 ? communicating / seconds : 0.0;
  }
};

/// Measures from start() to read(). The trainer's own few bytes, moved between begin_bookkeeping()
/// and end_bookkeeping(), count as time and not as bytes.
class TrafficMeter {
 public:
  explicit TrafficMeter(const transport::World& world) noexcept : world_(world) {}

  void start();
  void begin_bookkeeping();
  void end_bookkeeping();
  [[nodiscard]] Traffic read() const;

 private:
  const transport::World& world_;
  std::chrono::steady_clock::time_point began_;
  transport::Counters at_start_;
  std::uint64_t bookkeeping_from_ = 0;
  std::uint64_t bookkeeping_bytes_ = 0;
};

}  // namespace rondo::train
