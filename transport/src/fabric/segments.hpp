#pragma once

#include <algorithm>
#include <cstddef>

#include "node/slices.hpp"

namespace rondo::transport {

// What goes over a link goes in segments, of which a few are in flight: while one is reduced,
// others are on their way.

/// Messages that one stream of segments may have in flight.
inline constexpr std::size_t segment_window = 4;

/// Segments are not cut smaller than this only to fill the window.
inline constexpr std::size_t least_segment_bytes = std::size_t{256} << 10U;

/// How `bytes` are cut into segments; the same on all ranks that know `bytes` and `limit`.
class Segments {
 public:
  Segments() = default;
  /// As many as fill the window, unless these are small or longer than `limit`. Cut on cache lines.
  constexpr Segments(std::size_t bytes, std::size_t limit) noexcept
      : segment_bytes_(std::max(
            whole_lines(std::min(limit, std::max(least_segment_bytes, bytes / segment_window))),
            line)),
        count_(count_in(bytes)) {}

  /// Of the whole.
  [[nodiscard]] constexpr std::size_t count() const noexcept { return count_; }
  [[nodiscard]] constexpr std::size_t segment_bytes() const noexcept { return segment_bytes_; }

  /// Of something else that is cut like it.
  [[nodiscard]] constexpr std::size_t count_in(std::size_t bytes) const noexcept {
    return (bytes + segment_bytes_ - 1) / segment_bytes_;
  }
  /// Segment `index` of something of `bytes` bytes; empty beyond its last.
  [[nodiscard]] constexpr Range range(std::size_t index, std::size_t bytes) const noexcept {
    const std::size_t begin = std::min(bytes, index * segment_bytes_);
    return {begin, std::min(bytes, begin + segment_bytes_)};
  }

 private:
  static constexpr std::size_t line = 64;

  [[nodiscard]] static constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
    return (bytes + line - 1) / line * line;
  }

  std::size_t segment_bytes_ = line;
  std::size_t count_ = 0;
};

}  // namespace rondo::transport
