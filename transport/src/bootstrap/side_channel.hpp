#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "memory/memory.hpp"
#include "verdict/side_channel.hpp"

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

/// A rank's part of round `round` of allgather.
struct Blob {
  std::uint64_t round = 0;
  std::string bytes = {};

  static auto fields(auto& self) { return std::tie(self.round, self.bytes); }
};

/// All parts, in rank order.
struct Blobs {
  std::uint64_t round = 0;
  std::vector<std::string> parts = {};

  static auto fields(auto& self) { return std::tie(self.round, self.parts); }
};

/// One allgather after the other, where the parts come together. Pure bookkeeping.
///
/// The deadline of a round runs from its first part. No rank is in two rounds: it begins the
/// next when it has all parts of the last.
class AllgatherRounds {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit AllgatherRounds(std::size_t ranks) : parts_(ranks), came_(ranks, false) {}

  /// The number of the round under way, from 0.
  [[nodiscard]] std::uint64_t round() const noexcept { return round_; }

  /// False when it is of another round, or the rank's second.
  [[nodiscard]] bool add(std::size_t rank, Blob blob, Time deadline);

  /// All parts, once all came; then the next round begins.
  [[nodiscard]] std::optional<Blobs> complete();

  /// When the round under way must be complete; the end of time when it has no part yet.
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }

  /// "rank 3 of 4 did not come", "ranks 1, 2 of 4 did not come".
  [[nodiscard]] std::string missing() const;

  /// There will be no further rounds.
  void stop() noexcept { deadline_ = Time::max(); }

 private:
  std::uint64_t round_ = 0;
  std::size_t arrived_ = 0;
  std::vector<std::string> parts_;
  std::vector<bool> came_;
  Time deadline_ = Time::max();
};

}  // namespace rondo::transport::bootstrap
