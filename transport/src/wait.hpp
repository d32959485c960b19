#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "communicator_core.hpp"
#include "world_core.hpp"

namespace rondo::transport {

/// One rank's wait for one operation: first awake, then yielding, then asleep, until the
/// operation has finished or something ends it (deadline, abort, a lost peer).
class Wait {
 public:
  Wait(CommunicatorCore& communicator, OperationRecord& record, std::chrono::nanoseconds limit);

  /// Returns when the operation is complete; throws the Error that ends the wait.
  void run();

  /// One look at what would end the wait, instead of waiting. `lost_since` is kept from one look to
  /// the next.
  void glance(std::optional<std::chrono::steady_clock::time_point>& lost_since);

 private:
  using Clock = std::chrono::steady_clock;

  void rest();
  void sleep();
  void sleep_on_fabric(std::uint32_t bell);
  void look();
  void look_for_aborts();
  void look_for_lost_peers();
  /// A member that has gone, and for how long nothing more may have come before that is an error.
  struct Loss {
    std::size_t member;
    std::chrono::nanoseconds farewell;
  };
  [[nodiscard]] std::optional<Loss> find_loss() const;
  [[nodiscard]] std::chrono::nanoseconds farewell(std::size_t member) const;
  [[noreturn]] void throw_lost(int rank) const;
  void look_at_the_clock();
  void note_arrival();
  void account();

  CommunicatorCore& communicator_;
  OperationRecord& record_;
  WorldCore& world_;
  std::chrono::nanoseconds limit_;
  Clock::time_point begin_;
  Clock::time_point idle_since_;
  Clock::time_point now_;
  Clock::time_point looked_;
  std::optional<Clock::time_point> lost_since_;
  bool stall_reported_ = false;

  // For the counters: what the transport worked while this waited is counted where it works.
  bool arrived_ = false;
  std::chrono::nanoseconds waited_{0};
  std::chrono::nanoseconds work_before_{0};
};

}  // namespace rondo::transport
