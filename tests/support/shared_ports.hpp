#pragma once

// Ports between simulated nodes that two sequences of operations use at the same time, each
// simulated by a thread of its own.
//
// Both threads go through simulated time, and the one that is behind goes on: a message takes its
// ports when the other sequence sends nothing before it. So messages of ranks that keep pace leave
// a port in the order of their times. Where ranks drift apart, an operation may begin on one rank
// before the one in front of it has ended on another; its messages then count as not earlier than
// those. Either way each run has the same result, whichever thread runs first.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace rondo::test {

/// When both directions of a port are free again.
struct NodePort {
  double out = 0.0;
  double in = 0.0;
};

/// Sends a message at `time` that takes both ports for so many seconds. Returns when it has been
/// received.
inline double pass(NodePort& from, NodePort& to, double time, double seconds, double latency) {
  const double start = std::max(time, from.out);
  from.out = start + seconds;
  to.in = std::max(start + latency, to.in) + seconds;
  return to.in;
}

class SharedPorts {
 public:
  /// One of the two sequences. Its methods are called by the thread that simulates it, but for
  /// begin().
  class User {
   public:
    User(SharedPorts& ports, std::size_t number) : ports_(&ports), number_(number) {}

    /// From now on messages are sent, none before `time`. Called before the other sequence has
    /// gone beyond it.
    void begin(double time);
    /// No more messages are sent until begin(), as is so at first.
    void rest();

    /// Sends a message that takes each port for so many seconds, at `time`. Returns when it has
    /// been received.
    [[nodiscard]] double send(std::size_t from_node, std::size_t to_node, double time,
                              double seconds, double latency);

   private:
    SharedPorts* ports_;
    std::size_t number_;
  };

  explicit SharedPorts(std::size_t nodes) : ports_(nodes) {}

  /// When both users send at the same time, this one's message is first.
  [[nodiscard]] User& first() noexcept { return users_[0]; }
  [[nodiscard]] User& second() noexcept { return users_[1]; }

 private:
  void reach(std::size_t number, double time);
  [[nodiscard]] bool is_next(std::size_t number) const noexcept;

  std::array<User, 2> users_{User(*this, 0), User(*this, 1)};
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::array<double, 2> times_{0.0, 0.0};  // that each sequence has reached; they never fall
  std::array<bool, 2> rests_{true, true};
  std::vector<NodePort> ports_;
};

inline void SharedPorts::reach(std::size_t number, double time) {
  times_[number] = std::max(times_[number], time);
  changed_.notify_all();
}

inline bool SharedPorts::is_next(std::size_t number) const noexcept {
  const std::size_t other = 1 - number;
  if (rests_[other]) return true;
  return number == 0 ? times_[0] <= times_[1] : times_[1] < times_[0];
}

inline void SharedPorts::User::begin(double time) {
  const std::lock_guard lock(ports_->mutex_);
  ports_->rests_[number_] = false;
  ports_->reach(number_, time);
}

inline void SharedPorts::User::rest() {
  const std::lock_guard lock(ports_->mutex_);
  ports_->rests_[number_] = true;
  ports_->changed_.notify_all();
}

inline double SharedPorts::User::send(std::size_t from_node, std::size_t to_node, double time,
                                      double seconds, double latency) {
  std::unique_lock lock(ports_->mutex_);
  ports_->reach(number_, time);
  ports_->changed_.wait(lock, [&] { return ports_->is_next(number_); });
  return pass(ports_->ports_[from_node], ports_->ports_[to_node], time, seconds, latency);
}

}  // namespace rondo::test
