#pragma once

// Counts allocations, or lets them fail. A test that includes this links support/allocations.cpp,
// which replaces the global operator new.

#include <cstddef>

namespace rondo::test {

/// Calls of operator new by this thread so far.
[[nodiscard]] std::size_t allocations_of_this_thread() noexcept;
/// Bytes that they asked for.
[[nodiscard]] std::size_t bytes_allocated_by_this_thread() noexcept;

/// While it lives, operator new throws std::bad_alloc on this thread; not under the sanitizers,
/// whose hook cannot.
class NoMemory {
 public:
  NoMemory() noexcept;
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory();
};

}  // namespace rondo::test
