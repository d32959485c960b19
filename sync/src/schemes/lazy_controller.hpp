#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/sync/lazy.hpp>

namespace rondo::sync {

/// One probe's tests of a window of n iterations: its last gradient f against their sum G.
struct ProbeTests {
  bool angle = true;      ///< f.(G - f) >= 0: the last step does not turn back on those before it
  bool magnitude = true;  ///< n |f|^2 <= |G|^2: the sum is as long as if steps were orthogonal
};

/// Scalar products of f and G, both of which are sums over the ranks.
struct ProbeProducts {
  double last_sum = 0.0;   ///< f.G
  double last_last = 0.0;  ///< |f|^2
  double sum_sum = 0.0;    ///< |G|^2
};

/// Products that are NaN fail both.
[[nodiscard]] ProbeTests test_probe(const ProbeProducts& products, std::int64_t iterations);

/// The tests of all probes that the controller looks at.
struct WindowTests {
  ProbeTests last_probe = {};
  std::size_t probes = 1;
  std::size_t angles_passed = 1;
};

/// The interval after one of `interval` iterations; `max_interval` as in LazyOptions.
[[nodiscard]] std::int64_t next_interval(LazyController controller, const WindowTests& tests,
                                         std::int64_t interval, std::int64_t max_interval);

}  // namespace rondo::sync
