#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <linux/futex.h>
#include <sys/syscall.h>

#include <rondo/transport/element.hpp>

// The shared memory that ranks of one node read of each other. Everything here is written by one
// rank (but for the doorbell) and read by all; all flags are 64-bit sequences that only grow.

namespace rondo::transport::shm {

/// Operations that a communicator may have published and not yet seen consumed by all.
inline constexpr std::uint64_t slot_count = 16;
/// The largest payload of a small operation; larger ones are reduced where they lie.
inline constexpr std::size_t bulk_bytes = 4096;
/// The largest payload that fits into a slot beside its fingerprint.
inline constexpr std::size_t slot_payload_bytes = 48;
/// Says that a buffer lies in ordinary memory, out of reach of the peers.
inline constexpr std::uint64_t private_memory = ~std::uint64_t{0};
/// Says that it does, and that a copy of it lies in the operation's bulk payload.
inline constexpr std::uint64_t bulk_memory = private_memory - 1;
/// The sequence of a slot whose operation was given up: no operation has it.
inline constexpr std::uint64_t retracted = ~std::uint64_t{0};

enum class Collective : std::uint8_t {
  allreduce,
  broadcast,
  allgather,
  barrier,
  reduce_scatter,
  reduce,
  alltoall,
  gather,
  scatter,
  alltoallv,
  scan,
  exscan,
};

/// FNV-1a over numbers, byte by byte: for what ranks compare without telling all of it.
class Hash {
 public:
  constexpr void add(std::uint64_t number) noexcept {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      value_ = (value_ ^ ((number >> shift) & 0xFFU)) * 0x100000001B3U;
    }
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

/// The arguments that must be equal on all ranks for an operation to make sense.
struct Fingerprint {
  Collective collective = Collective::barrier;
  ElementType type = ElementType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t reserved = 0;
  std::int32_t root = -1;
  std::uint64_t count = 0;        ///< elements of the whole result
  std::uint64_t counts_hash = 0;  ///< of the ranks' shares, where these can differ

  [[nodiscard]] bool operator==(const Fingerprint&) const noexcept = default;
};

/// Where a rank's input lies, seen from its arena; and its output, if peers store into it.
///
/// The facts that peers need about a single row lie in the first cache line of a Slot, which
/// crosses between the cores with the sequence; the stride is neither written nor read then.
struct Locator {
  std::uint64_t offset = private_memory;
  std::uint64_t output_offset = private_memory;
  std::uint64_t rows = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t stride_bytes = 0;  ///< of several rows
  std::uint64_t reserved = 0;

  [[nodiscard]] std::uint64_t stride() const noexcept {
    return rows > 1 ? stride_bytes : row_bytes;
  }
};

/// One posted operation of one rank. `sequence` is stored last (release), so whoever reads it
/// (acquire) and finds its own number sees the rest.
struct alignas(128) Slot {
  std::atomic<std::uint64_t> sequence{0};
  Fingerprint fingerprint = {};
  union {
    Locator locator = {};
    std::array<std::byte, slot_payload_bytes> payload;
  };
};
static_assert(sizeof(Slot) == 128 && sizeof(Locator) == slot_payload_bytes);
static_assert(offsetof(Slot, locator) + offsetof(Locator, stride_bytes) == 64);

/// Why a rank has given up a communicator, or that its deadline has passed.
struct FailureNote {
  std::int32_t code = 0;         ///< an Errc
  std::int32_t rank = -1;        ///< the World rank at fault, or -1
  std::array<char, 496> text{};  ///< zero-terminated; empty when a peer's note says it already

  /// A text that is too long is cut.
  void set_text(std::string_view whole) noexcept {
    const std::size_t length = std::min(whole.size(), text.size() - 1);
    std::copy_n(whole.begin(), length, text.begin());
    text[length] = '\0';
  }
};

/// Whether a rank's note of a loss explains its end: not where it went on.
enum class LossNote : std::uint32_t { none, there, survived };

/// One rank's side of one communicator.
struct alignas(128) ControlBlock {
  std::array<Slot, slot_count> slots;

  /// This rank reads and writes nothing of operations up to here any more.
  alignas(128) std::atomic<std::uint64_t> consumed{0};

  /// Rounds of staged operations (see Staging) that this rank has filled its buffer for, reduced
  /// its slice of, and read its peers' slices of.
  alignas(128) std::atomic<std::uint64_t> staged_filled{0};
  std::atomic<std::uint64_t> staged_reduced{0};
  std::atomic<std::uint64_t> staged_read{0};
  /// Offset of the staging buffers in the control segment; 0 until they are made.
  std::atomic<std::uint64_t> staging{0};

  /// The operation for which this rank reads or stores in peers' arenas at this moment, or 0. See
  /// RemoteAccess.
  alignas(128) std::atomic<std::uint64_t> accessing{0};

  /// Not 0: this rank has given up the communicator for good, and its buffers are its own again.
  /// Stored after `failure`. In a line of its own, because peers read it in every step.
  alignas(128) std::atomic<std::uint32_t> failed{0};
  FailureNote failure = {};

  alignas(128) std::array<std::array<std::byte, bulk_bytes>, slot_count> bulk = {};
};

/// A rank's facts about itself, at the beginning of its control segment.
struct alignas(128) RankHeader {
  std::uint64_t nonce = 0;  ///< proves that a mapping is of the rank it is said to be
  /// Does a membarrier() of a peer reach this rank's process? Written before any peer maps it.
  bool light_fences = false;
  std::atomic<std::uint32_t> left{0};
  std::atomic<std::uint32_t> aborted{0};
  std::array<char, 496> abort_reason{};  ///< written before `aborted`, zero-terminated
  /// The first ranks that this one has waited for as long as half of its deadline, each plus 1;
  /// then zeros. See Stalls.
  std::array<std::atomic<std::uint32_t>, 8> awaited{};
  /// Not 0: a deadline of this rank has passed. Stored after `deadline_note`.
  std::atomic<std::uint32_t> gave_up{0};
  FailureNote deadline_note = {};
  /// Has this rank failed because a peer was lost? Stored after `loss_note`, of the first.
  std::atomic<LossNote> saw_loss{LossNote::none};
  FailureNote loss_note = {};
  /// Offset of the rank's table of rings (links/shm/ring.hpp) in the control segment; 0 until
  /// it has opened its link.
  std::atomic<std::uint64_t> rings{0};

  /// The only word with several writers: peers add one to it and wake whoever sleeps there.
  alignas(128) std::atomic<std::uint32_t> doorbell{0};
  std::atomic<std::uint32_t> asleep{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// How a rank that sleeps is woken: it marks itself asleep, rereads all that it waits for, and
// sleeps on its doorbell, a futex. A rank that stores a flag for which others may sleep rings.

/// Sleeps while `*word` is `expected`, for at most `limit`. Works across processes, so the word
/// may lie in shared memory.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::chrono::nanoseconds limit) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

/// Wakes everyone who sleeps on `word`.
inline void futex_wake(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Wakes the rank, asleep or about to sleep.
inline void ring(RankHeader& header) noexcept {
  // Release: a rank that sees the new number sees what was stored before.
  header.doorbell.fetch_add(1, std::memory_order_release);
  futex_wake(header.doorbell);
}

/// Between storing flags and ring_if_asleep(): either a rank that falls asleep sees the flags, or
/// this rank sees its mark. Needs the full fence: a store is followed by a load.
inline void fence_before_ringing() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

/// Wakes the rank if it has marked itself asleep.
inline void ring_if_asleep(RankHeader& header) noexcept {
  // Relaxed: the fence orders it.
  if (header.asleep.load(std::memory_order_relaxed) != 0) ring(header);
}

}  // namespace rondo::transport::shm
