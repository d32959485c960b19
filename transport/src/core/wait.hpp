#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/communicator_core.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {

/// One rank's wait for one operation: first awake, then yielding, then asleep, until the
/// operation has finished or something ends it (deadline, abort, a lost or a failed peer).
class Wait {
 public:
  /// To `limit`, or without one to the World's deadline.
  Wait(CommunicatorCore& communicator, OperationRecord& record,
       std::optional<std::chrono::nanoseconds> limit);

  /// True when the operation is complete, false when `limit` has passed; throws the Error that
  /// ends the wait.
  [[nodiscard]] bool run();

  /// One look at what would end the wait, instead of waiting.
  void check_peers();

 private:
  using Clock = std::chrono::steady_clock;

  void rest();
  void sleep();
  void sleep_on_fabric(std::uint32_t bell);
  void look();
  void look_for_aborts();
  void look_for_failed_peers();
  /// A member that has gone, and for how long nothing more may have come before that is an error.
  struct Loss {
    std::size_t member;
    std::chrono::nanoseconds grace;
  };
  void look_at_loss(const Loss& loss);
  void take_what_came();
  [[nodiscard]] std::optional<Loss> find_loss() const;
  [[nodiscard]] bool is_loss(std::size_t member) const;
  [[nodiscard]] std::chrono::nanoseconds grace(std::size_t member) const;
  [[noreturn]] void throw_lost(int rank) const;
  void look_at_the_clock();
  [[noreturn]] void throw_deadline(const std::vector<int>& missing) const;
  void note_arrival();
  void account();

  CommunicatorCore& communicator_;
  OperationRecord& record_;
  WorldCore& world_;
  std::chrono::nanoseconds limit_;
  bool has_own_limit_;
  bool limit_passed_ = false;  // of its own
  Clock::time_point begin_;
  Clock::time_point idle_since_;
  Clock::time_point now_;
  Clock::time_point looked_;
  bool stall_reported_ = false;

  // For the counters: what the transport worked while this waited is counted where it works.
  bool arrived_ = false;
  std::chrono::nanoseconds waited_{0};
  std::chrono::nanoseconds work_before_{0};
};

}  // namespace rondo::transport
