#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/stage.hpp"
#include "recorder/ticks.hpp"

// What a rank records about itself, as it lies in shared memory: a Header, then one Log after the
// other. Written by the rank alone, and read by whoever holds the descriptor, at any time, also
// when the rank is gone: nothing here is a pointer, and a half-written entry can be told.

namespace rondo::transport::recorder {

/// Operations that a log remembers.
inline constexpr std::size_t log_entries = 1024;
/// Members of a communicator that a log names.
inline constexpr std::size_t named_members = 256;

/// Beside the collectives, which are numbered as shm::Collective: PointToPointCall from here on.
inline constexpr std::uint8_t first_point_to_point = 16;

/// One operation. `index` counts all operations of the log from 1; it is 0 while the entry is
/// being written, and stored last (release).
struct alignas(64) Entry {
  std::atomic<std::uint64_t> index;
  std::atomic<std::uint64_t> number;  ///< of a collective, as messages have it; else the tag
  std::atomic<std::uint8_t> operation;
  std::atomic<std::uint8_t> type;       ///< ElementType
  std::atomic<std::uint8_t> reduction;  ///< ReduceOp
  std::atomic<std::uint8_t> stage;      ///< Stage
  std::atomic<std::int32_t> partner;    ///< root, or the first peer; -1: none
  std::atomic<std::uint64_t> count;     ///< elements, as in messages
  std::atomic<std::uint64_t> bytes;     ///< that this rank gives, or takes when it gives none
  std::atomic<std::uint64_t> posted;    ///< ticks; also below
  std::atomic<std::uint64_t> started;   ///< 0: not yet
  std::atomic<std::uint64_t> ended;     ///< 0: not yet
};
static_assert(sizeof(Entry) == 64);

enum class LogState : std::uint32_t { unused, open, closed };

/// What one communicator did.
struct alignas(64) Log {
  std::atomic<LogState> state;
  std::atomic<std::uint32_t> context;  ///< the same on all its ranks, and on no other one of theirs
  std::atomic<std::int32_t> rank;
  std::atomic<std::int32_t> size;
  std::atomic<std::uint64_t> posted;  ///< operations so far; the last of them are in the ring
  std::array<std::atomic<std::int32_t>, named_members> members;  ///< World ranks
  std::array<Entry, log_entries> ring;                           ///< index i at (i - 1) % 1024
};

/// Who records, since when, and what first went wrong.
struct alignas(64) Header {
  static constexpr std::uint64_t expected_magic = 0x31303052444E4F52;  // "RONDR001"

  std::atomic<std::uint64_t> magic;  ///< stored last (release)
  TickSource source;
  std::int32_t rank;
  std::int32_t size;
  std::int32_t pid;
  Moment began;
  std::array<char, 16> version;  ///< of the library, zero-terminated; also below
  std::array<char, 64> host;
  std::atomic<std::uint32_t> logs;     ///< that follow, used or not
  std::atomic<std::uint32_t> failure;  ///< an Errc, stored after its text (release); 0: none
  std::array<char, 960> failure_text;
};

/// The log at a place in the memory that begins at `base`.
[[nodiscard]] inline std::size_t offset_of_log(std::size_t place) noexcept {
  return sizeof(Header) + place * sizeof(Log);
}

}  // namespace rondo::transport::recorder
