#pragma once

// Ports between simulated nodes that two sequences of operations use at the same time, each
// simulated by a thread of its own.
//
// Both threads go through simulated time, and the one that is behind goes on: a message takes its
// ports when the other sequence sends nothing before it. So messages leave a port in the order of
// their times, one behind the other, and every run has the same result.

#include <array>
#include <condition_variable>
#include <cstddef>
#include <limits>
#include <mutex>
#include <vector>

namespace rondo::test {

class SharedPorts {
 public:
  /// One of the two sequences. Its methods are called by the thread that simulates it, but for
  /// begin().
  class User {
   public:
    User(SharedPorts& ports, std::size_t number) : ports_(&ports), number_(number) {}

    /// Nothing is sent before `time` from now on. Called before the other sequence goes on beyond
    /// it. A sequence that sends nothing for the time being is at never, as both are at first.
    void begin(double time);

    /// Sends a message of so many seconds at `time`. Returns when it has been received. Times
    /// rise from call to call; where ranks of one node are not in that order, the message goes
    /// behind those that were sent before.
    [[nodiscard]] double send(std::size_t from_node, std::size_t to_node, double time,
                              double seconds, double latency);

   private:
    SharedPorts* ports_;
    std::size_t number_;
  };

  static constexpr double never = std::numeric_limits<double>::infinity();

  explicit SharedPorts(std::size_t nodes) : out_(nodes, 0.0), in_(nodes, 0.0) {}

  /// Of what both send at the same time, this one's is first.
  [[nodiscard]] User& first() noexcept { return users_[0]; }
  [[nodiscard]] User& second() noexcept { return users_[1]; }

 private:
  [[nodiscard]] bool is_next(std::size_t number) const noexcept;

  std::array<User, 2> users_{User(*this, 0), User(*this, 1)};
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::array<double, 2> times_{never, never};
  std::vector<double> out_;  // when each node's port is free again
  std::vector<double> in_;
};

}  // namespace rondo::test
