#include "trainer/traffic_meter.hpp"

#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void TrafficMeter::start() {
  began_ = std::chrono::steady_clock::now();
  at_start_ = world_.counters();
  bookkeeping_bytes_ = 0;
}

void TrafficMeter::begin_bookkeeping() { bookkeeping_from_ = world_.counters().moved_bytes(); }

void TrafficMeter::end_bookkeeping() {
  bookkeeping_bytes_ += world_.counters().moved_bytes() - bookkeeping_from_;
}

Traffic TrafficMeter::read() const {
  const transport::Counters now = world_.counters();
  const std::uint64_t moved = now.moved_bytes() - at_start_.moved_bytes() - bookkeeping_bytes_;
  return {.seconds = seconds_of(std::chrono::steady_clock::now() - began_),
          .communicating = seconds_of(now.communicating - at_start_.communicating),
          .waiting = seconds_of(now.waiting - at_start_.waiting),
          .bytes = static_cast<double>(moved)};
}

}  // namespace rondo::train
