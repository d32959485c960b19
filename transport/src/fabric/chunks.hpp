#pragma once

#include <algorithm>
#include <cstddef>

#include "collective/operation.hpp"
#include "node/slices.hpp"

namespace rondo::transport {

// The chunks of operations over a ring: of an allreduce, even parts of the data cut on cache
// lines; of reduce_scatter and allgather, the ranks' shares.

/// Chunk `chunk` of the `bytes` of an allreduce.
[[nodiscard]] constexpr Range allreduce_chunk(std::size_t bytes, std::size_t ranks,
                                              std::size_t chunk) noexcept {
  return slice(bytes, ranks, chunk, 64);
}

/// Bytes of chunk `chunk`; the same on all ranks.
[[nodiscard]] inline std::size_t chunk_bytes(const Posted& posted, std::size_t ranks,
                                             std::size_t chunk) noexcept {
  if (posted.fingerprint.collective == shm::Collective::allreduce) {
    return allreduce_chunk(posted.input.bytes(), ranks, chunk).size();
  }
  return posted.share_row_bytes(chunk) * posted.input.rows;
}

[[nodiscard]] inline std::size_t longest_chunk(const Posted& posted, std::size_t ranks) noexcept {
  std::size_t longest = 0;
  for (std::size_t chunk = 0; chunk < ranks; ++chunk) {
    longest = std::max(longest, chunk_bytes(posted, ranks, chunk));
  }
  return longest;
}

}  // namespace rondo::transport
