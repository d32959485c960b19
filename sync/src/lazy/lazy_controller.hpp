#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rondo/sync/lazy.hpp>

namespace rondo::sync {

/// What one probe says about a window of n iterations: its last gradient f against their sum G.
struct ProbeTests {
  bool angle = true;      ///< f.(G - f) >= 0: the last step does not turn back on those before it
  bool magnitude = true;  ///< n |f|^2 <= |G|^2: the sum is as long as if steps were orthogonal
};

/// Both are sums over the ranks. Numbers that are none fail both.
[[nodiscard]] ProbeTests test_probe(std::span<const float> last, std::span<const float> sum,
                                    std::int64_t iterations);

/// What all probes that the controller looks at say.
struct WindowTests {
  ProbeTests last_probe = {};
  std::size_t probes = 1;
  std::size_t angles_passed = 1;
};

/// The interval after one of `interval` iterations; `max_interval` as in LazyOptions.
[[nodiscard]] std::int64_t next_interval(LazyController controller, const WindowTests& tests,
                                         std::int64_t interval, std::int64_t max_interval);

}  // namespace rondo::sync
