#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/transport/error.hpp>

#include "recorder/log.hpp"
#include "verdict/peer_status.hpp"

namespace rondo::transport {

class WorldCore;

/// The facts that Stalls needs of an operation that this rank waits for.
struct Waiter {
  Stage stage = Stage::complete;
  bool needs_others = false;          ///< it cannot end well unless others have taken part
  std::uint64_t failures_before = 0;  ///< Stalls::failures() when it was posted
};

/// Which rank keeps this one waiting, and what an error says of it beside its name.
struct Fault {
  int rank = -1;  ///< -1: nobody knows
  std::string clause = {};
};

/// How far the search for the fault of one wait has come.
struct FaultSearch {
  std::optional<std::chrono::steady_clock::time_point> asked_at = {};
};

/// Which rank keeps the others waiting?
///
/// A rank that waits in vain knows for whom, but these may wait themselves. So a rank that has
/// waited for half of its deadline, be it by testing again and again, tells the peers of its node
/// and the store (WaitGraph), and one whose deadline has passed asks. Then it tells all ranks, so
/// that these do not take its leaving for the cause. All of it on the World's thread.
class Stalls {
 public:
  explicit Stalls(WorldCore& world) noexcept : world_(&world) {}

  using Time = std::chrono::steady_clock::time_point;

  /// Is it time to tell() for whom `waiter` waits? Of several threads that wait long, the first
  /// tells.
  [[nodiscard]] bool may_tell(const Waiter& waiter, Time now) const noexcept;
  /// This rank has waited for `waiter` long, and `missing` have not come. It does not repeat what
  /// it told last.
  void tell(const Waiter& waiter, std::span<const int> missing, Time now);
  /// This rank goes on, or gives the operation up; withdraws what was told of it, unless it has
  /// failed.
  void end(const Waiter& waiter) noexcept;

  /// Which rank is at fault that `missing` do not come. Nothing while the store may still answer:
  /// then it is to be called again, with the same `search`.
  [[nodiscard]] std::optional<Fault> find_fault(std::span<const int> missing, FaultSearch& search);

  /// This rank gives up a communicator because its deadline or that of a peer of its node has
  /// passed; `error` says whose fault that is. It tells, unless the store has told of another.
  void give_up(const Error& error) noexcept;
  /// The first other rank that is known to have given up.
  [[nodiscard]] std::optional<GaveUp> gave_up() const;

  /// A communicator of this rank has failed. Where that is because a peer is lost, which `error`
  /// names, the peers of the node can read the first such error, so that none takes this rank's end
  /// for the cause; until an operation of this rank and others, posted later, has ended well: then
  /// the loss is survived.
  void note_failure(const Error& error) noexcept;
  /// The number of failures of this rank's communicators.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
  /// Such a loss explains no later one.
  [[nodiscard]] bool has_survived_loss_of(int rank) const noexcept;
  /// Why `rank` failed, if it noted a loss. Nothing of ranks of other nodes: the store tells in
  /// which order those were lost.
  [[nodiscard]] std::optional<GaveUp> loss_noted_by(int rank) const;

 private:
  [[nodiscard]] bool ask(std::span<const int> missing);
  [[nodiscard]] int fault_on_node(std::span<const int> missing) const;
  void publish(std::span<const int> missing) const noexcept;
  void tell_unless_told(std::span<const int> missing);
  void survive_losses() noexcept;

  WorldCore* world_;
  const Waiter* waiter_ = nullptr;  // that told last; null when it has ended
  Time told_at_{};
  std::vector<int> told_;  // for whom it waits, as others know
  std::uint64_t failures_ = 0;
  bool has_failed_since_ = false;  // because a peer was lost; and not survived it yet
  std::vector<bool> survived_;     // by rank; empty before the first such failure
};

}  // namespace rondo::transport
