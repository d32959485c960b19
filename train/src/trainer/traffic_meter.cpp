#include "trainer/traffic_meter.hpp"

#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

// Through shared memory, and in messages.
std::uint64_t bytes_of(const transport::Counters& counters) {
  return counters.moved_bytes() + counters.sent_bytes;
}

}  // namespace

void TrafficMeter::start() {
  began_ = std::chrono::steady_clock::now();
  at_start_ = world_.counters();
  bookkeeping_bytes_ = 0;
}

void TrafficMeter::begin_bookkeeping() { bookkeeping_from_ = bytes_of(world_.counters()); }

void TrafficMeter::end_bookkeeping() {
  bookkeeping_bytes_ += bytes_of(world_.counters()) - bookkeeping_from_;
}

Traffic TrafficMeter::read() const {
  const transport::Counters now = world_.counters();
  const std::uint64_t moved = bytes_of(now) - bytes_of(at_start_) - bookkeeping_bytes_;
  return {.seconds = seconds_of(std::chrono::steady_clock::now() - began_),
          .communicating = seconds_of(now.communicating - at_start_.communicating),
          .waiting = seconds_of(now.waiting - at_start_.waiting),
          .bytes = static_cast<double>(moved)};
}

}  // namespace rondo::train
