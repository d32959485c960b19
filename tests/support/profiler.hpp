#pragma once

// Signals that come all the time.

#include <signal.h>
#include <time.h>

#include <atomic>

#include <gtest/gtest.h>

namespace rondo::test {

/// How many SIGPROF this process has handled, once there is a Profiler.
inline std::atomic<int> profiler_signals{0};

/// Counts SIGPROF instead of dying of it. System calls are not restarted after it.
inline void handle_profiler_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) { profiler_signals += 1; };
  ASSERT_EQ(::sigaction(SIGPROF, &action, nullptr), 0);
}

/// Sends this process SIGPROF every millisecond, whether it computes or waits.
class Profiler {
 public:
  Profiler() {
    handle_profiler_signals();
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGPROF;
    EXPECT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer_), 0);
    constexpr timespec millisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
    const itimerspec period{.it_interval = millisecond, .it_value = millisecond};
    EXPECT_EQ(::timer_settime(timer_, 0, &period, nullptr), 0);
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler() { ::timer_delete(timer_); }

 private:
  timer_t timer_ = {};
};

}  // namespace rondo::test
