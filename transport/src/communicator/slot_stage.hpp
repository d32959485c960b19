#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rondo/transport/error.hpp>

#include "collective/algorithms.hpp"
#include "communicator/operation_record.hpp"
#include "memory/control_block.hpp"

namespace rondo::transport {

class CommunicatorCore;
class WorldCore;

/// Has the communicator failed on that member, which is on this node? Then its note says why.
[[nodiscard]] inline bool has_failed(const Member& member) {
  // Acquire: pairs with the release in publish_failure(); a note is read after it, and no memory of
  // that rank is touched before it.
  return member.block != nullptr && member.block->failed.load(std::memory_order_acquire) != 0;
}

/// How the members of a communicator on one node agree on its operations: by slots in shared
/// memory.
///
/// A rank publishes an operation in a slot of its control block; when the slots of all members hold
/// the same sequence they are compared, and the operation runs. A rank whose part is done says so
/// by the number that it has consumed; when all members have, the operation is complete.
///
/// HeaderStage does the same between nodes, by the same functions: CommunicatorCore calls the one
/// that it has. Both are parts of it. Hierarchical operations go through slots on each node, too;
/// see NodeQueue.
class SlotStage {
 public:
  /// `group` is that of `core`, or of its members on this node. Both are under construction; the
  /// first operation has the sequence `first`, which is at least shm::slot_count.
  SlotStage(CommunicatorCore& core, Group& group, std::uint64_t first);

  /// Is the slot of the operation free? It is when all members have consumed the one before it.
  [[nodiscard]] bool may_publish(const SlotOperation& operation) noexcept {
    return all_have_consumed(operation.posted.sequence - shm::slot_count);
  }
  void publish(SlotOperation& operation) { publish(operation, operation.posted.fingerprint); }
  /// Members compare `shown`, which the communicator's current operation has.
  void publish(SlotOperation& operation, const shm::Fingerprint& shown);
  /// Has every member posted the operation? Throws Error(mismatch) when one has posted another.
  [[nodiscard]] bool all_have_posted(SlotOperation& operation) const;
  /// All have: chooses the algorithm and begins it.
  void start(SlotOperation& operation, OperationStorage<>& storage) const;
  [[nodiscard]] Progress step(SlotOperation& operation) const;
  /// This rank's part is done.
  void end_own_part(const SlotOperation& operation) noexcept {
    consumed_ = operation.posted.sequence;
    if (operation.protocol == Protocol::small) entry_of(operation) = nullptr;
    // Release: all that this rank read and stored for the operation comes before the flag.
    group_.mine().consumed.store(consumed_, std::memory_order_release);
    group_.published = true;
  }
  /// Is that of all members done?
  [[nodiscard]] bool all_have_ended(const SlotOperation& operation) noexcept {
    if (!all_have_consumed(operation.posted.sequence)) return false;
    if (entry_of(operation) == &operation) entry_of(operation) = nullptr;  // else the slot's next
    return true;
  }
  /// Does a tile of the work that is left then; true when none is.
  [[nodiscard]] bool finish(OperationRecord& /*record*/) const noexcept { return true; }

  /// Compares what has come already, whether or not other members are missing.
  void compare_all() const;
  /// Does the oldest incomplete operation up to `record` wait for that member?
  [[nodiscard]] bool waits_for(const OperationRecord& record, std::size_t member) const {
    return is_late(front_of(record), member);
  }
  /// Has the member not yet done what this operation, which waits for no older one, waits for?
  [[nodiscard]] bool is_late(const SlotOperation& operation, std::size_t member) const;
  /// The operation that `record`, a collective, waits for: itself, or an older one.
  [[nodiscard]] const OperationRecord& front_of(const OperationRecord& record) const;

  /// The communicator fails: tells the peers of the node why. When it returns, no peer touches the
  /// buffers of what is pending.
  void fail(const Error& error);
  void give_up(OperationRecord& /*record*/) const noexcept {}

 private:
  // The cached value is read first: it is enough most of the time, and spares a look at every peer.
  [[nodiscard]] bool all_have_consumed(std::uint64_t sequence) noexcept {
    return sequence <= consumed_by_all_ || sequence <= consumed_by_all();
  }
  [[nodiscard]] std::uint64_t consumed_by_all() noexcept;
  [[nodiscard]] const SlotOperation*& entry_of(const SlotOperation& operation) noexcept {
    return published_[operation.posted.sequence % shm::slot_count];
  }
  void compare(const SlotOperation& operation, std::size_t member) const;
  void throw_failure_of_peers() const;
  void retract_slots() noexcept;
  void publish_failure(const Error& error);
  void release_arena();
  [[nodiscard]] bool accesses_arenas(const Member& member) const noexcept;
  void quarantine(const Member& accessor);

  CommunicatorCore& core_;
  Group& group_;
  WorldCore& world_;
  std::uint64_t consumed_;         // by this rank, as its control block says
  std::uint64_t consumed_by_all_;  // cached; only grows
  bool light_fences_ = true;       // see shm::RemoteAccess
  // By slot: those that are not complete.
  std::array<const SlotOperation*, shm::slot_count> published_{};
};

}  // namespace rondo::transport
