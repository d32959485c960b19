#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/transport/error.hpp>

#include "communicator/communicator_core.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {

/// How often a rank that is awake, or sleeps for moments only, checks for aborts and lost peers.
inline constexpr std::chrono::milliseconds check_interval{2};

/// An operation that is waited for.
struct Awaited {
  CommunicatorCore* communicator;
  OperationRecord* record;
};

/// One rank's wait for the first of some operations to end: first awake, then yielding, then
/// asleep, until one has finished or something ends the wait (deadline, abort, a lost or a failed
/// peer of any of them).
class Wait {
 public:
  /// For any of `all`, which is lent and not empty.
  Wait(std::span<const Awaited> all, const CommunicatorCore::WaitLimit& limit);

  /// True when an operation has finished, false when `limit` has passed; throws the Error that
  /// ends the wait, which is failing().
  [[nodiscard]] bool run();
  /// The communicator of the operation that was looked at last.
  [[nodiscard]] CommunicatorCore& failing() const noexcept { return *communicator_; }

  /// One look at what would end the wait, instead of waiting.
  void check_peers();
  /// Tells for whom this rank waits, if it has wanted the operation for half of its deadline.
  void tell_if_late();

 private:
  using Clock = std::chrono::steady_clock;

  void look_at(const Awaited& awaited) noexcept;
  void look_at_clock() noexcept;
  [[nodiscard]] bool any_finished() const noexcept;
  void put_off_losses() noexcept;
  void rest();
  [[nodiscard]] bool sleeps_briefly() const;
  void sleep();
  void sleep_on_doorbell(std::uint32_t bell, std::chrono::nanoseconds slice);
  void sleep_on_fabric(std::uint32_t bell, std::chrono::nanoseconds slice);
  void check();
  void check_aborts();
  void check_failed_peers();
  /// A member that has ended, and for how long nothing may arrive before that is an error.
  struct Loss {
    std::size_t member;
    std::chrono::nanoseconds grace;
  };
  void check_loss(const Loss& loss);
  [[nodiscard]] Error loss_error(const Loss& loss) const;
  void check_unobserved();
  [[nodiscard]] bool needs_unobserved() const;
  [[nodiscard]] std::optional<int> find_unobserved() const;
  [[nodiscard]] bool is_quiet_for(std::chrono::nanoseconds grace);
  [[nodiscard]] bool is_put_off_too_long(std::size_t member);
  void throw_if_lost() const;
  [[nodiscard]] bool drain_arrivals();
  [[nodiscard]] std::optional<Loss> find_loss() const;
  [[nodiscard]] bool is_loss(std::size_t member) const;
  [[nodiscard]] std::chrono::nanoseconds grace(std::size_t member) const;
  void check_deadline();
  void report_stall(const std::vector<int>& missing);
  [[nodiscard]] std::string what_waited() const;
  void throw_if_held_back(const std::vector<int>& missing) const;
  [[noreturn]] void throw_deadline(const std::vector<int>& missing, const Fault& fault) const;
  void note_arrival();
  void account();

  std::span<const Awaited> all_;
  CommunicatorCore* communicator_;  // of the operation that is looked at
  OperationRecord* record_;
  WorldCore& world_;
  CommunicatorCore::WaitLimit given_;
  std::chrono::nanoseconds limit_;
  bool limit_passed_ = false;  // of its own
  std::uint64_t moves_seen_;
  Clock::time_point begin_;
  Clock::time_point idle_since_;
  Clock::time_point now_;
  Clock::time_point checked_at_;
  bool stall_reported_ = false;
  FaultSearch fault_search_;

  // For the counters: what the transport worked while this waited is counted where it works.
  bool arrived_ = false;
  std::chrono::nanoseconds waited_{0};
  std::chrono::nanoseconds work_before_{0};
};

}  // namespace rondo::transport
