#pragma once

#include <algorithm>
#include <cstddef>

namespace rondo::transport {

/// A half-open range of elements or bytes.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
};

/// No two ranks store into the same cache line, so slices are cut at multiples of it.
inline constexpr std::size_t cache_line_bytes = 64;

/// The part of `count` elements that falls to part `index` of `parts`: as even as whole units of
/// `unit` elements allow (a cache line, so that no two ranks store into the same one).
[[nodiscard]] constexpr Range slice(std::size_t count, std::size_t parts, std::size_t index,
                                    std::size_t unit) noexcept {
  const std::size_t units = (count + unit - 1) / unit;
  const std::size_t begin = units * index / parts * unit;
  const std::size_t end = units * (index + 1) / parts * unit;
  return {std::min(begin, count), std::min(end, count)};
}

}  // namespace rondo::transport
