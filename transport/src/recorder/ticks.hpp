#pragma once

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace rondo::transport::recorder {

/// What the recorder's times are counted by.
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

}  // namespace rondo::transport::recorder
