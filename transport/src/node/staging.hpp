#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/group.hpp"

namespace rondo::transport {

// Staging buffers carry what lies in ordinary memory. Each rank has staging_buffers of them per
// communicator, made on first use in its control segment. Staged operations go in rounds; round k
// (counted over the life of the communicator, alike on all ranks) uses buffer k mod
// staging_buffers. A rank fills its buffer, and says so in staged_filled; that it has reduced its
// slices, in staged_reduced; that it reads and writes nothing of round k in peers' buffers any
// more, in staged_read. A buffer is filled again only when all peers have said that.
//
// Two large ones were measured fastest (of 32 to 512 KiB, one to four): both ranks of a pair keep
// all that they exchange in their second-level caches.

inline constexpr std::size_t staging_bytes = std::size_t{256} << 10U;
inline constexpr std::uint64_t staging_buffers = 2;

/// Makes this rank's staging buffers unless it has them. Throws Error(out_of_memory).
void make_staging(Group& group);

/// The buffer of round `round` of `member`, which has filled it.
[[nodiscard]] std::byte* staging_of(const Member& member, std::uint64_t round) noexcept;

/// Has every other rank read round `round - staging_buffers`, so that `round` may be filled?
[[nodiscard]] bool staging_is_free(const Group& group, std::uint64_t round) noexcept;

/// Is the flag of every other rank beyond `round`?
[[nodiscard]] bool all_beyond(const Group& group,
                              std::atomic<std::uint64_t> shm::ControlBlock::* flag,
                              std::uint64_t round) noexcept;

/// Stores into one of this rank's own staged flags.
void publish(Group& group, std::atomic<std::uint64_t> shm::ControlBlock::* flag,
             std::uint64_t rounds) noexcept;

}  // namespace rondo::transport
