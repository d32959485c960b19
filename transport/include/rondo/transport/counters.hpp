#pragma once

#include <chrono>
#include <cstdint>

namespace rondo::transport {

/// What a rank has moved and how long it took, since its World began. Differences of two
/// snapshots describe what happened between them.
///
/// Inside a node nothing is sent in messages: a rank loads from and stores to its peers' memory.
struct Counters {
  std::uint64_t operations = 0;    ///< collectives completed
  std::uint64_t loaded_bytes = 0;  ///< read from memory that peers wrote
  std::uint64_t stored_bytes = 0;  ///< written into peers' memory
  /// Inside transport calls, before the last rank had posted what was waited for.
  std::chrono::nanoseconds waiting{0};
  /// Inside transport calls, after it: the cost of moving and reducing.
  std::chrono::nanoseconds communicating{0};

  /// Bytes that crossed between ranks on this rank's account.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return loaded_bytes + stored_bytes; }
};

}  // namespace rondo::transport
