#pragma once

#include <chrono>
#include <cstdint>

namespace rondo::transport {

/// What a rank has moved and how long it took, since its World began. Differences of two
/// snapshots describe what happened between them.
///
/// Inside a node collectives send no messages: a rank loads from and stores to its peers' memory.
/// Point-to-point operations do, and so does everything between nodes.
struct Counters {
  std::uint64_t operations = 0;       ///< collectives completed
  std::uint64_t loaded_bytes = 0;     ///< read from memory that peers wrote
  std::uint64_t stored_bytes = 0;     ///< written into peers' memory
  std::uint64_t sent_messages = 0;    ///< to any rank
  std::uint64_t sent_bytes = 0;       ///< in them
  std::uint64_t fabric_messages = 0;  ///< those of them that left the node
  std::uint64_t fabric_bytes = 0;
  /// Inside transport calls, before the last rank had posted what was waited for.
  std::chrono::nanoseconds waiting{0};
  /// Inside transport calls, after it: the cost of moving and reducing.
  std::chrono::nanoseconds communicating{0};

  /// Bytes that crossed between ranks on this rank's account.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return loaded_bytes + stored_bytes; }
};

}  // namespace rondo::transport
