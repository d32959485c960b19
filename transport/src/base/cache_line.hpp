#pragma once

#include <cstddef>

namespace rondo::transport {

/// No two ranks store into the same cache line: memory and slices are cut at multiples of it.
inline constexpr std::size_t cache_line_bytes = 64;

/// The least multiple of `unit` that is not less than `bytes`.
[[nodiscard]] constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace rondo::transport
