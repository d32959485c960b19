#include "support/shared_ports.hpp"

#include <algorithm>

namespace rondo::test {

bool SharedPorts::is_next(std::size_t number) const noexcept {
  const double other = times_[1 - number];
  return number == 0 ? times_[0] <= other : times_[1] < other;
}

void SharedPorts::User::begin(double time) {
  const std::lock_guard lock(ports_->mutex_);
  ports_->times_[number_] = time;
  ports_->changed_.notify_all();
}

double SharedPorts::User::send(std::size_t from_node, std::size_t to_node, double time,
                               double seconds, double latency) {
  std::unique_lock lock(ports_->mutex_);
  ports_->times_[number_] = time;
  ports_->changed_.notify_all();
  ports_->changed_.wait(lock, [&] { return ports_->is_next(number_); });
  double& out = ports_->out_[from_node];
  double& in = ports_->in_[to_node];
  const double start = std::max(time, out);
  out = start + seconds;
  in = std::max(start + latency, in) + seconds;
  return in;
}

}  // namespace rondo::test
