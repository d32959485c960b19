#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

#include "shm/control_block.hpp"

// How a rank that sleeps is woken: it marks itself asleep, rereads all that it waits for, and
// sleeps on its doorbell, a futex. A rank that stores a flag for which others may sleep rings.

namespace rondo::transport::shm {

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
