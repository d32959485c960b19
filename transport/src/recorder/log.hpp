#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

// The records of a rank about itself, as they lie in shared memory (a RecordHeader, then one Log
// after the other), the clock of its times, and how an operation is recorded. The memory is written
// by the rank alone, and read by whoever holds the descriptor, at any time, also when the rank is
// gone: nothing in it is a pointer, and a half-written entry can be told.

namespace rondo::transport {

/// How far one posted operation has come on this rank.
enum class Stage : std::uint8_t {
  queued,     ///< its slot is still in use by an older operation
  published,  ///< peers can see it; waits until all ranks have posted it
  running,    ///< all have; this rank does its part
  draining,   ///< this rank's part is done; waits for the peers'
  complete,
  failed,
};

/// The call that posted a message.
enum class PointToPointCall : std::uint8_t { send, recv, sendrecv, put_signal, wait_signal };

namespace recorder {

/// The clock that counts the recorder's times.
///
/// A system call's worth of clock is too much twice per operation of 200 ns, so the processor's own
/// counter is read where it runs at one pace on all cores and through all sleep states.
enum class TickSource : std::uint32_t { processor, monotonic_clock };

/// Nanoseconds of CLOCK_MONOTONIC or CLOCK_REALTIME.
[[nodiscard]] inline std::uint64_t nanoseconds_of(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

/// The source that this machine has; the same in all its processes.
[[nodiscard]] TickSource best_tick_source() noexcept;

/// best_tick_source(), asked for once.
inline const TickSource tick_source = best_tick_source();

[[nodiscard]] inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  if (tick_source == TickSource::processor) return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#endif
  return nanoseconds_of(CLOCK_MONOTONIC);
}

/// One moment on three clocks.
struct Moment {
  std::uint64_t ticks = 0;
  std::uint64_t monotonic_ns = 0;
  std::uint64_t unix_ns = 0;

  [[nodiscard]] static Moment now() noexcept;
};

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
  std::atomic<std::uint64_t> bytes;     ///< that this rank sends, or receives when it sends none
  std::atomic<std::uint64_t> posted;    ///< ticks; also below
  std::atomic<std::uint64_t> started;   ///< 0: not yet
  std::atomic<std::uint64_t> ended;     ///< 0: not yet
};
static_assert(sizeof(Entry) == 64);

enum class LogState : std::uint32_t { unused, open, closed };

/// The record of one communicator's operations.
struct alignas(64) Log {
  std::atomic<LogState> state;
  std::atomic<std::uint32_t> context;  ///< the same on all its ranks, and on no other one of theirs
  std::atomic<std::int32_t> rank;
  std::atomic<std::int32_t> size;
  std::atomic<std::uint64_t> posted;  ///< operations so far; the last of them are in the ring
  std::array<std::atomic<std::int32_t>, named_members> members;  ///< World ranks
  std::array<Entry, log_entries> ring;                           ///< index i at (i - 1) % 1024
};

/// Tells who records, since when, and what first went wrong.
struct alignas(64) RecordHeader {
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

/// Where log `index`, counted from 0, begins in the memory.
[[nodiscard]] inline std::size_t offset_of_log(std::size_t index) noexcept {
  return sizeof(RecordHeader) + index * sizeof(Log);
}

/// The known facts about an operation when it is posted; see Entry.
struct Facts {
  std::uint64_t number = 0;
  std::uint8_t operation = 0;
  std::uint8_t type = 0;
  std::uint8_t reduction = 0;
  Stage stage = Stage::queued;
  std::int32_t partner = -1;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

/// An operation's entry, as long as no later operation has overwritten it in the ring.
///
/// All stores are relaxed and go to one cache line: a reader uses what it finds. Reading the clock
/// costs more than everything else here, so who ends within a microsecond is not timed.
class Stamp {
 public:
  Stamp() noexcept = default;
  Stamp(Entry& entry, std::uint64_t index) noexcept : entry_(&entry), index_(index) {}

  void note(Stage stage) noexcept {
    if (!valid()) return;
    note_untimed(stage);
    if (stage == Stage::running) entry_->started.store(ticks(), std::memory_order_relaxed);
    if (stage == Stage::complete || stage == Stage::failed) end();
  }

  void note_untimed(Stage stage) noexcept {
    if (!valid()) return;
    entry_->stage.store(static_cast<std::uint8_t>(stage), std::memory_order_relaxed);
  }

  /// The operation has ended just now, unless that has been noted before.
  void end() noexcept {
    if (!valid()) return;
    entry_->ended.store(ticks(), std::memory_order_relaxed);
    entry_ = nullptr;
  }

 private:
  [[nodiscard]] bool valid() const noexcept {
    return entry_ != nullptr && entry_->index.load(std::memory_order_relaxed) == index_;
  }

  Entry* entry_ = nullptr;
  std::uint64_t index_ = 0;
};

/// Puts an operation into a log, over the oldest one. Never waits and never allocates.
[[nodiscard]] inline Stamp record(Log& log, const Facts& facts) noexcept {
  // Relaxed: no other thread writes it.
  const std::uint64_t index = log.posted.load(std::memory_order_relaxed) + 1;
  Entry& entry = log.ring[(index - 1) % log_entries];
  constexpr auto relaxed = std::memory_order_relaxed;
  entry.index.store(0, relaxed);
  // A reader that sees anything of the new operation sees that the old one is over.
  std::atomic_thread_fence(std::memory_order_release);
  entry.number.store(facts.number, relaxed);
  entry.operation.store(facts.operation, relaxed);
  entry.type.store(facts.type, relaxed);
  entry.reduction.store(facts.reduction, relaxed);
  entry.stage.store(static_cast<std::uint8_t>(facts.stage), relaxed);
  entry.partner.store(facts.partner, relaxed);
  entry.count.store(facts.count, relaxed);
  entry.bytes.store(facts.bytes, relaxed);
  const std::uint64_t now = ticks();
  entry.posted.store(now, relaxed);
  entry.started.store(facts.stage == Stage::running ? now : 0, relaxed);
  entry.ended.store(0, relaxed);
  entry.index.store(index, std::memory_order_release);
  log.posted.store(index, relaxed);
  // The ring is larger than the first cache: the next operation's stores must not wait for it.
  __builtin_prefetch(&log.ring[index % log_entries], 1);
  return {entry, index};
}

}  // namespace recorder
}  // namespace rondo::transport
