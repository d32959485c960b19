#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "memory/memory.hpp"

namespace rondo::transport {

class WorldCore;

/// Implements World::event_descriptor() and World::arm(): an epoll descriptor, which is readable
/// when the doorbell has been rung, when the link between nodes has an event, or when it is time to
/// look for lost peers. It takes three descriptors and a thread, whatever the number of ranks.
///
/// Belongs to the World's thread.
class EventDescriptor {
 public:
  /// Throws std::system_error.
  explicit EventDescriptor(WorldCore& world);
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  ~EventDescriptor();

  [[nodiscard]] int get() const noexcept { return epoll_.get(); }
  /// How long it stays unreadable at most after arm(). 0: for ever.
  void set_check_interval(std::chrono::nanoseconds interval) noexcept { interval_ = interval; }

  /// True when whoever makes progress possible from now on makes it readable; false when something
  /// has moved now. Throws std::system_error.
  [[nodiscard]] bool arm();
  /// Peers need not ring any more.
  void disarm() noexcept;

 private:
  void pass_on_rings() noexcept;
  void make_readable() noexcept;
  void watch(int descriptor);
  /// False when something has moved; else `slice` is how long the descriptor may be trusted.
  [[nodiscard]] bool arm_link(std::chrono::nanoseconds& slice);
  [[nodiscard]] bool has_new_abort();
  void set_timer(std::chrono::nanoseconds slice) noexcept;

  WorldCore* world_;
  shm::Descriptor epoll_;
  shm::Descriptor rings_;  // an eventfd
  shm::Descriptor timer_;
  int link_ = -1;  // the link's descriptor, if it has shown one
  std::chrono::nanoseconds interval_{0};
  bool armed_ = false;
  bool abort_told_ = false;
  std::atomic<bool> ending_{false};
  std::thread helper_;
};

}  // namespace rondo::transport
