// Waiting for sockets.

#include "rendezvous/sockets.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace rondo::transport::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

bool wait_until_ready(int descriptor, short events, Clock::time_point until) {
  while (true) {
    const auto left = std::max<std::chrono::nanoseconds>(until - Clock::now(), {});
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    pollfd entry{.fd = descriptor, .events = events, .revents = 0};
    const int ready = ::ppoll(&entry, 1, &time, nullptr);
    // Whoever uses the descriptor next learns of any other error.
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (ready == 0) return false;
  }
}

}  // namespace rondo::transport::rendezvous
