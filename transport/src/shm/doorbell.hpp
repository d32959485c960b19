#pragma once

#include <atomic>
#include <cstdint>

#include "shm/futex.hpp"
#include "shm/layout.hpp"

namespace rondo::transport::shm {

// How a rank that sleeps learns of news: it marks itself asleep, rereads all it waits for, and
// sleeps on its doorbell. Whoever stores a flag that it may sleep for rings.

/// Wakes the rank, asleep or about to sleep.
inline void ring(RankHeader& header) noexcept {
  // Release: whoever hears the bell sees what was stored before.
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
