#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/algorithms.hpp"

namespace rondo::transport {

// The common part of the three protocols inside a node: the slots in which ranks show what they
// have posted.

[[nodiscard]] inline shm::Slot& slot_of(shm::ControlBlock& block, std::uint64_t sequence) noexcept {
  return block.slots[sequence % shm::slot_count];
}

/// The payload of a small operation in `block`.
[[nodiscard]] inline std::byte* payload_of(shm::ControlBlock& block, std::uint64_t sequence,
                                           std::size_t bytes) noexcept {
  if (bytes <= shm::slot_payload_bytes) return slot_of(block, sequence).payload.data();
  return block.bulk[sequence % shm::slot_count].data();
}

/// Writes this rank's payload, as publishing a small operation does.
void write_small_payload(Group& group, const Posted& posted) noexcept;

// A line that a peer has just read is fetched anew when its writer reads it: this rank takes what
// is its own from `posted`, and not from its slot.

/// Where member `rank` has its input of what was posted, when that lies in an arena.
[[nodiscard]] inline ConstBlock input_of(const Group& group, std::size_t rank,
                                         const Posted& posted) noexcept {
  if (rank == group.index()) return posted.input;
  const Member& member = group.members[rank];
  const shm::Locator& locator = slot_of(*member.block, posted.sequence).locator;
  // Empty memory may lie anywhere; no rank touches it.
  const bool reachable = locator.offset != shm::private_memory;
  return {reachable ? member.memory->arena().base() + locator.offset : nullptr,
          posted.fingerprint.type, locator.rows, locator.row_bytes, locator.stride()};
}

/// Where it wants the result, if peers store it there.
[[nodiscard]] inline std::byte* output_of(const Group& group, std::size_t rank,
                                          const Posted& posted) noexcept {
  if (rank == group.index()) return posted.output.data;
  const Member& member = group.members[rank];
  return member.memory->arena().base() +
         slot_of(*member.block, posted.sequence).locator.output_offset;
}

/// How it is run inside a node, where up to `small_bytes` travel in slots; the same on all ranks.
/// All but small operations and messages are `staged`, until it is known where their memory lies.
[[nodiscard]] Protocol protocol_of(const Group& group, const Posted& posted,
                                   std::size_t small_bytes) noexcept;

/// Bytes of a staging buffer, and how many a rank has per communicator. Two large ones were
/// measured fastest (of 32 to 512 KiB, one to four): both ranks of a pair keep all that they
/// exchange in their second-level caches.
inline constexpr std::size_t staging_bytes = std::size_t{256} << 10U;
inline constexpr std::uint64_t staging_buffers = 2;

}  // namespace rondo::transport
