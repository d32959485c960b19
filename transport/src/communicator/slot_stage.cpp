// The agreement on operations inside a node. A record is published in a slot of this rank's control
// block as soon as all peers have consumed what the slot held before. When all members' slots hold
// the same sequence, they are compared, the protocol is known, and the operation runs. It has ended
// when all members have consumed it.
//
// In the direct protocol peers read and store in the buffers themselves. So a rank that gives up
// first makes that impossible for whoever comes later: it retracts its slots, says in its control
// block that it has failed, and waits for the peers that are in the middle of a step (see
// RemoteAccess). Only then its caller gets the error. A step takes a millisecond at most; but a
// process can be stopped in it. After a while the rank goes on without it, and what that one step
// works on is kept in quarantine.

#include "communicator/slot_stage.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "collective/blocks.hpp"
#include "collective/node/protocol.hpp"
#include "communicator/communicator_core.hpp"
#include "memory/arena.hpp"
#include "memory/memory.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

using namespace std::chrono_literals;

// For so long a peer that is in the middle of a step is waited for; and how often it is looked at.
constexpr auto access_limit = 500ms;
constexpr auto access_interval = 50us;

// Tells peers how they find the input of this rank, and its output if they store into it: as
// offsets in its arena, because each process maps it at an address of its own.
void locate(shm::Locator& locator, const Posted& posted, bool with_output, const ArenaCore& arena) {
  const ConstBlock& block = posted.input;
  locator.offset = arena.offset_of(block.data, extent_of(block));
  locator.output_offset =
      with_output ? arena.offset_of(posted.output.data, block.bytes()) : shm::private_memory;
  locator.rows = block.rows;
  locator.row_bytes = block.row_bytes;
  if (block.rows > 1) locator.stride_bytes = block.stride_bytes;
}

// Do peers read the input of `member` in the direct protocol?
bool input_is_read(const shm::Fingerprint& fingerprint, std::size_t member) {
  return fingerprint.collective != shm::Collective::broadcast ||
         fingerprint.root == static_cast<std::int32_t>(member);
}

// Do peers store into the output of `member` in the direct protocol?
bool output_is_written(const shm::Fingerprint& fingerprint, std::size_t member) {
  return fingerprint.collective == shm::Collective::allreduce ||
         (fingerprint.collective == shm::Collective::reduce &&
          fingerprint.root == static_cast<std::int32_t>(member));
}

bool in_arena(std::uint64_t offset) {
  return offset != shm::private_memory && offset != shm::bulk_memory;
}

// Does the direct protocol need memory of `member` that no other rank can reach?
bool out_of_reach(const shm::Fingerprint& fingerprint, const shm::Locator& locator,
                  std::size_t member) {
  const bool empty = locator.rows * locator.row_bytes == 0;
  return !empty && ((input_is_read(fingerprint, member) && !in_arena(locator.offset)) ||
                    (output_is_written(fingerprint, member) && !in_arena(locator.output_offset)));
}

// Would it be a small operation, had two ranks not a faster way between arenas?
bool small_out_of_arenas(const Posted& posted, const Group& group, const WorldOptions& options) {
  return group.count() == 2 && posted.fingerprint.collective == shm::Collective::allreduce &&
         posted.input.bytes() <= options.small_bytes;
}

}  // namespace

// One rank without light fences is enough: then every step pays for a full fence.
SlotStage::SlotStage(CommunicatorCore& core, Group& group, std::uint64_t first)
    : core_(core),
      group_(group),
      world_(core.world()),
      consumed_(first - 1),
      consumed_by_all_(first - 1) {
  for (const Member& member : group_.members) {
    if (member.memory != nullptr && !member.memory->header().light_fences) light_fences_ = false;
  }
}

// Whether a small payload travels in the slot is decided by its size alone, so that all ranks
// decide alike. For all else the slot says where the buffers lie, or that a copy is in the bulk
// payload.
void SlotStage::publish(SlotOperation& operation, const shm::Fingerprint& shown) {
  const Posted& posted = operation.posted;
  shm::Slot& slot = slot_of(group_.mine(), posted.sequence);
  slot.fingerprint = shown;
  if (operation.protocol == Protocol::small) {
    write_small_payload(group_, posted);
  } else {
    locate(slot.locator, posted, output_is_written(posted.fingerprint, group_.index()),
           world_.arena_core());
    operation.any_private = out_of_reach(posted.fingerprint, slot.locator, group_.index());
    operation.all_in_bulk =
        operation.any_private && small_out_of_arenas(posted, group_, world_.options());
    if (operation.all_in_bulk) {
      write_small_payload(group_, posted);
      slot.locator.offset = shm::bulk_memory;
    }
  }
  // Release: peers that find the sequence see the slot, the payload, and the input itself.
  slot.sequence.store(posted.sequence, std::memory_order_release);
  entry_of(operation) = &operation;
  group_.published = true;
}

// Goes on where the last call stopped: members before `arrived` have been seen and compared. This
// rank has seen itself when it published.
bool SlotStage::all_have_posted(SlotOperation& operation) const {
  const Posted& posted = operation.posted;
  for (std::size_t& member = operation.arrived; member < group_.count(); ++member) {
    if (member == group_.index()) continue;
    shm::Slot& slot = slot_of(*group_.members[member].block, posted.sequence);
    // Acquire: pairs with the release in publish().
    if (slot.sequence.load(std::memory_order_acquire) != posted.sequence) return false;
    compare(operation, member);
    if (operation.protocol != Protocol::small) {
      operation.any_private =
          operation.any_private || out_of_reach(posted.fingerprint, slot.locator, member);
      operation.all_in_bulk = operation.all_in_bulk && slot.locator.offset == shm::bulk_memory;
    }
  }
  return true;
}

// All members have seen the same slots, so all of them choose the same protocol.
void SlotStage::start(SlotOperation& operation, OperationStorage<>& storage) const {
  if (operation.protocol == Protocol::staged) {
    if (!operation.any_private) operation.protocol = Protocol::direct;
    if (operation.all_in_bulk) operation.protocol = Protocol::small;
  }
  operation.operation = &transport::start(storage, operation.protocol, group_, operation.posted);
}

// Only in the direct protocol peers' buffers are touched. A peer that has failed has them back, so
// its failure is looked for after this rank has said that it is in a step; see RemoteAccess.
Progress SlotStage::step(SlotOperation& operation) const {
  const Posted& posted = operation.posted;
  if (operation.protocol != Protocol::direct) return operation.operation->step(group_, posted);
  const shm::RemoteAccess access(group_.mine(), posted.sequence, light_fences_);
  throw_failure_of_peers();
  return operation.operation->step(group_, posted);
}

void SlotStage::throw_failure_of_peers() const {
  for (const Member& member : group_.members) {
    if (has_failed(member)) throw core_.failure_of(member);
  }
}

// The last operation that no member reads or writes any more.
std::uint64_t SlotStage::consumed_by_all() noexcept {
  std::uint64_t least = consumed_;
  for (std::size_t r = 0; r < group_.count(); ++r) {
    if (r == group_.index()) continue;
    // Acquire: a peer's stores into this rank's buffers come before its flag.
    least = std::min(least, group_.members[r].block->consumed.load(std::memory_order_acquire));
  }
  consumed_by_all_ = least;
  return least;
}

void SlotStage::compare_all() const {
  const OperationRecord* const current = core_.current_;
  if (current == nullptr || current->stage != Stage::published) return;
  const std::uint64_t sequence = current->posted.sequence;
  for (std::size_t r = 0; r < group_.count(); ++r) {
    // Acquire: pairs with the release in publish().
    if (slot_of(*group_.members[r].block, sequence).sequence.load(std::memory_order_acquire) ==
        sequence) {
      compare(*current, r);
    }
  }
}

void SlotStage::compare(const SlotOperation& operation, std::size_t member) const {
  const Member& peer = group_.members[member];
  const OperationRecord& current = *core_.current_;
  core_.compare(current, peer.world_rank,
                slot_of(*peer.block, operation.posted.sequence).fingerprint,
                current.posted.sequence);
}

// Each stage waits for another mark of a peer: a consumed slot, a published one, progress in the
// algorithm, the consumed operation itself.
bool SlotStage::is_late(const SlotOperation& operation, std::size_t member) const {
  const std::uint64_t sequence = operation.posted.sequence;
  shm::ControlBlock& block = *group_.members[member].block;
  switch (operation.stage) {
    case Stage::queued:
      return block.consumed.load(std::memory_order_acquire) + shm::slot_count < sequence;
    case Stage::published:
      return slot_of(block, sequence).sequence.load(std::memory_order_acquire) != sequence;
    case Stage::running:
      return operation.operation->waits_for(group_, member);
    case Stage::draining:
      return block.consumed.load(std::memory_order_acquire) < sequence;
    case Stage::complete:
    case Stage::failed:
      return false;
  }
  return false;
}

// Operations run in order: what is waited for may be queued behind another.
const OperationRecord& SlotStage::front_of(const OperationRecord& record) const {
  const OperationRecord* const current = core_.current_;
  const bool behind = current != nullptr && record.stage != Stage::draining &&
                      current->posted.sequence <= record.posted.sequence;
  return behind ? *current : record;
}

// In this order: peers can no longer reach the buffers, and only then records end and the caller
// gets the error.
void SlotStage::fail(const Error& error) {
  retract_slots();
  publish_failure(error);
  release_arena();
}

// No peer that has not begun an operation begins it now. Slots of operations that this rank has
// completed stay: peers may still read them.
void SlotStage::retract_slots() noexcept {
  for (const SlotOperation* operation : published_) {
    if (operation == nullptr) continue;
    // Relaxed: whoever still finds the old number looks for failures before it goes on.
    slot_of(group_.mine(), operation->posted.sequence)
        .sequence.store(shm::retracted, std::memory_order_relaxed);
  }
}

void SlotStage::publish_failure(const Error& error) {
  shm::ControlBlock& mine = group_.mine();
  // The rank that failed first says why; the others, which it has told, leave their notes empty.
  if (std::ranges::none_of(group_.members, has_failed)) {
    write_note(mine.failure, error);
  }
  // Release: the note comes before the word.
  mine.failed.store(1, std::memory_order_release);
  for (const Member& member : group_.members) shm::ring(member.memory->header());
}

// After it no peer touches the buffers of what is pending, unless it was stopped in the middle of
// a step; what that step works on is in quarantine then.
void SlotStage::release_arena() {
  shm::fence_everywhere();
  const auto limit = std::chrono::steady_clock::now() + access_limit;
  for (const Member& member : group_.members) {
    while (accesses_arenas(member) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(access_interval);
    }
    if (accesses_arenas(member)) quarantine(member);
  }
}

bool SlotStage::accesses_arenas(const Member& member) const noexcept {
  // Acquire: what the peer stored in a step that is over comes before what the caller does next.
  return &member != &group_.members[group_.index()] &&
         member.block->accessing.load(std::memory_order_acquire) != 0 &&
         !world_.has_ended(member.world_rank);
}

// The whole input and output of the operation, though one step works on a part of them only.
void SlotStage::quarantine(const Member& accessor) {
  const std::uint64_t sequence = accessor.block->accessing.load(std::memory_order_relaxed);
  const SlotOperation* const operation = published_[sequence % shm::slot_count];
  if (operation == nullptr || operation->posted.sequence != sequence) return;
  const auto over = [this_world = &world_, rank = accessor.world_rank, block = accessor.block,
                     sequence] {
    return block->accessing.load(std::memory_order_acquire) != sequence ||
           this_world->has_ended(rank);
  };
  ArenaCore& arena = world_.arena_core();
  for (const ConstBlock& lent :
       {operation->posted.input, as_const_block(operation->posted.output)}) {
    const std::uint64_t offset = arena.offset_of(lent.data, extent_of(lent));
    if (offset != shm::private_memory) arena.quarantine(offset, extent_of(lent), over);
  }
}

}  // namespace rondo::transport
