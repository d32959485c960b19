#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/operation.hpp"

namespace rondo::transport {

/// How an operation's bytes travel. The size alone decides for `small`; for the others, whether
/// every rank's input lies in an arena.
enum class Protocol : std::uint8_t {
  small,   ///< in the slots: everyone writes its own, everyone reads all
  direct,  ///< straight between the ranks' arenas
  staged,  ///< through staging buffers
};

[[nodiscard]] inline shm::Slot& slot_of(shm::ControlBlock& block, std::uint64_t sequence) noexcept {
  return block.slots[sequence % shm::slot_count];
}

/// The payload of a small operation in `block`.
[[nodiscard]] inline std::byte* payload_of(shm::ControlBlock& block, std::uint64_t sequence,
                                           std::size_t bytes) noexcept {
  if (bytes <= shm::inline_bytes) return slot_of(block, sequence).payload.data();
  return block.bulk[sequence % shm::slot_count].data();
}

/// From the first byte of a block to its last.
[[nodiscard]] inline std::size_t extent_of(const ConstBlock& block) noexcept {
  return block.rows == 0 ? 0 : (block.rows - 1) * block.stride_bytes + block.row_bytes;
}

/// Where member `rank` put the input of operation `sequence`, when it lies in an arena.
[[nodiscard]] inline ConstBlock remote_input(const Group& group, std::size_t rank,
                                             const Posted& posted) noexcept {
  const Member& member = group.members[rank];
  const shm::Locator& locator = slot_of(*member.block, posted.sequence).locator;
  // What is empty may lie anywhere; nobody touches it.
  const bool reachable = locator.offset != shm::private_memory;
  return {reachable ? member.memory->arena().base() + locator.offset : nullptr,
          posted.fingerprint.type, locator.rows, locator.row_bytes, locator.stride_bytes};
}

/// Where it wants the result, if peers store it there.
[[nodiscard]] inline std::byte* remote_output(const Group& group, std::size_t rank,
                                              const Posted& posted) noexcept {
  const Member& member = group.members[rank];
  return member.memory->arena().base() +
         slot_of(*member.block, posted.sequence).locator.output_offset;
}

}  // namespace rondo::transport
