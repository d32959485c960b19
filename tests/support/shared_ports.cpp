#include "support/shared_ports.hpp"

#include <algorithm>

namespace rondo::test {

void SharedPorts::reach(std::size_t number, double time) {
  times_[number] = std::max(times_[number], time);
  changed_.notify_all();
}

bool SharedPorts::is_next(std::size_t number) const noexcept {
  const std::size_t other = 1 - number;
  if (rests_[other]) return true;
  return number == 0 ? times_[0] <= times_[1] : times_[1] < times_[0];
}

void SharedPorts::User::begin(double time) {
  const std::lock_guard lock(ports_->mutex_);
  ports_->rests_[number_] = false;
  ports_->reach(number_, time);
}

void SharedPorts::User::rest() {
  const std::lock_guard lock(ports_->mutex_);
  ports_->rests_[number_] = true;
  ports_->changed_.notify_all();
}

double SharedPorts::User::send(std::size_t from_node, std::size_t to_node, double time,
                               double seconds, double latency) {
  std::unique_lock lock(ports_->mutex_);
  ports_->reach(number_, time);
  ports_->changed_.wait(lock, [&] { return ports_->is_next(number_); });
  return pass(ports_->ports_[from_node], ports_->ports_[to_node], time, seconds, latency);
}

}  // namespace rondo::test
