#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "shm/memory.hpp"

namespace rondo::transport::bootstrap {

using Clock = std::chrono::steady_clock;

/// Something that the service thread looks after. Called on that thread only.
class ServiceTask {
 public:
  ServiceTask() = default;
  ServiceTask(const ServiceTask&) = delete;
  ServiceTask& operator=(const ServiceTask&) = delete;
  virtual ~ServiceTask() = default;

  /// Appends what it waits for.
  virtual void list(std::vector<pollfd>& entries) = 0;

  /// When to attend() even if nothing happens.
  [[nodiscard]] virtual Clock::time_point due() const = 0;

  /// Does what can be done without waiting. `entries` are those that list() appended, in order.
  virtual void attend(std::span<const pollfd> entries, Clock::time_point now) = 0;

  /// The thread ends, because memory ran out or a task threw: it will not be called again.
  virtual void on_failure(std::string_view why) noexcept = 0;

  /// To end soon; it will be attended to until it has finished(), or for half a second.
  virtual void finish() = 0;
  [[nodiscard]] virtual bool finished() const = 0;
};

/// The one thread of a World of several hosts: it accepts connections, serves the store on rank 0,
/// and receives status messages. It sleeps unless something happens, and never touches data of
/// collectives.
///
/// All signals that a program may handle are blocked on it. The destructor lets the tasks finish
/// in their order, and joins it. When a task throws, all are told, and the thread ends; the
/// process does not.
class ServiceThread {
 public:
  /// The tasks must outlive it.
  explicit ServiceThread(std::vector<ServiceTask*> tasks);
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread();

  /// Makes it attend to its tasks now. From any thread.
  void wake() noexcept;

 private:
  void run() noexcept;
  void serve();
  void fail(std::string_view why) noexcept;
  void turn(Clock::time_point limit);

  std::vector<ServiceTask*> tasks_;
  shm::Descriptor bell_;
  std::atomic<bool> stop_ = false;
  std::vector<pollfd> entries_;
  std::vector<std::size_t> counts_;
  std::thread thread_;
};

}  // namespace rondo::transport::bootstrap
