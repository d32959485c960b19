#include "trainer/slow_rank.hpp"

#include <algorithm>
#include <thread>

#include <rondo/transport/world.hpp>

namespace rondo::train {
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
