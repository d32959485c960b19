#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/transport/block.hpp>

#include "fabric/group.hpp"
#include "shm/control_block.hpp"

namespace rondo::transport {

/// What one step of an operation achieved.
enum class Progress : std::uint8_t {
  idle,   ///< nothing: it waits for a peer
  moved,  ///< something, and there is more to do
  done,   ///< this rank's part is over: it reads and writes nothing of the operation any more
};

/// What was posted: the arguments, checked, without their types.
struct Posted {
  std::uint64_t sequence = 0;
  shm::Fingerprint fingerprint = {};
  ConstBlock input = {};  ///< what this rank gives
  Block output = {};      ///< where the result goes; the same memory for in-place operations
  /// Where ranks have shares (allgather, reduce_scatter, alltoall): bytes of a row of each share,
  /// when all are equal; else of each rank's.
  std::size_t row_bytes_each = 0;
  std::vector<std::size_t> row_bytes_of = {};

  /// Bytes of a row of `rank`'s share.
  [[nodiscard]] std::size_t share_row_bytes(std::size_t rank) const noexcept {
    return row_bytes_of.empty() ? row_bytes_each : row_bytes_of[rank];
  }
};

/// One rank's part of one posted operation after all ranks have posted it: a small state with a
/// step. Lives in its record; sees peers through the Group only.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Does a bounded amount of work without waiting.
  virtual Progress step(Group& group, const Posted& posted) = 0;

  /// Has the member not yet done what the next step waits for? For reports about stalls.
  [[nodiscard]] virtual bool waits_for(const Group& group, std::size_t member) const = 0;
};

/// Bytes that one step of an operation works on, per thread.
inline constexpr std::size_t tile_bytes = std::size_t{64} << 10U;

}  // namespace rondo::transport
