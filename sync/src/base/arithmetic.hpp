#pragma once

#include <cstddef>
#include <cstdint>

// What several schemes count alike.

namespace rondo::sync {

/// Of fp32.
[[nodiscard]] constexpr std::size_t bytes_of(std::size_t elements) noexcept {
  return elements * sizeof(float);
}

/// The elements of a rank's share, where so many are divided among `ranks`: whole cache lines,
/// which no two ranks should write. The last share is what is left.
[[nodiscard]] constexpr std::size_t share_of(std::size_t elements, std::size_t ranks) noexcept {
  constexpr std::size_t line = 16;  // elements
  return (elements + line * ranks - 1) / (line * ranks) * line;
}

/// Is a multiple of `every` in (before, after]?
[[nodiscard]] constexpr bool crosses(std::int64_t before, std::int64_t after,
                                     std::int64_t every) noexcept {
  return every > 0 && before / every != after / every;
}

}  // namespace rondo::sync
