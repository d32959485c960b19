#include "recorder/ticks.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rondo::transport::recorder {

TickSource best_tick_source() noexcept {
#if defined(__x86_64__)
  constexpr unsigned power_management = 0x80000007;
  constexpr unsigned invariant_counter = 1U << 8U;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool known = __get_cpuid(power_management, &a, &b, &c, &d) != 0;
  return known && (d & invariant_counter) != 0 ? TickSource::processor
                                               : TickSource::monotonic_clock;
#elif defined(__aarch64__)
  return TickSource::processor;
#else
  return TickSource::monotonic_clock;
#endif
}

Moment Moment::now() noexcept {
  Moment moment;
  moment.unix_ns = nanoseconds_of(CLOCK_REALTIME);
  moment.monotonic_ns = nanoseconds_of(CLOCK_MONOTONIC);
  moment.ticks = recorder::ticks();
  return moment;
}

}  // namespace rondo::transport::recorder
