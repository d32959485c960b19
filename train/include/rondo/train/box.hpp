#pragma once

#include <algorithm>
#include <cstdint>

#include <rondo/tensor/shape.hpp>

namespace rondo::train {

/// Indices [first, last) along one dimension; first <= last.
struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;

  [[nodiscard]] constexpr std::int64_t size() const noexcept { return last - first; }
  [[nodiscard]] constexpr bool empty() const noexcept { return first >= last; }
  /// Does all of `other` lie within? An empty range lies within any.
  [[nodiscard]] constexpr bool contains(Range other) const noexcept {
    return other.empty() || (first <= other.first && other.last <= last);
  }
  [[nodiscard]] constexpr bool operator==(const Range&) const noexcept = default;
};

/// What both have in common; possibly empty.
[[nodiscard]] constexpr Range intersection(Range a, Range b) noexcept {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max(first, std::min(a.last, b.last))};
}

/// Part `index` of `parts` of [0, total): the one rule by which everything is cut.
///
/// Parts are adjacent and differ by at most one index; where there are more parts than indices,
/// some are empty. Cutting p * q parts is cutting p parts into q each: part i of p is made of the
/// parts i * q ... i * q + q - 1 of p * q.
[[nodiscard]] constexpr Range even_range(std::int64_t total, int parts, int index) noexcept {
  return {total * index / parts, total * (index + 1) / parts};
}

/// The size of the largest part.
[[nodiscard]] constexpr std::int64_t largest_part(std::int64_t total, int parts) noexcept {
  return (total + parts - 1) / parts;
}

/// A box of an activation [N,H,W,C]: the elements whose every index lies in its range.
struct Box {
  Range n = {};
  Range h = {};
  Range w = {};
  Range c = {};

  /// Its extents, as those of a tensor that holds just this box.
  [[nodiscard]] constexpr tensor::Shape shape() const noexcept {
    return {n.size(), h.size(), w.size(), c.size()};
  }
  /// Elements.
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return shape().size(); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] constexpr bool contains(const Box& other) const noexcept {
    return other.empty() || (n.contains(other.n) && h.contains(other.h) && w.contains(other.w) &&
                             c.contains(other.c));
  }
  [[nodiscard]] constexpr bool operator==(const Box&) const noexcept = default;
};

[[nodiscard]] constexpr Box intersection(const Box& a, const Box& b) noexcept {
  return {intersection(a.n, b.n), intersection(a.h, b.h), intersection(a.w, b.w),
          intersection(a.c, b.c)};
}

/// All elements of an array.
[[nodiscard]] constexpr Box whole(const tensor::Shape& extents) noexcept {
  return {{0, extents.n}, {0, extents.h}, {0, extents.w}, {0, extents.c}};
}

}  // namespace rondo::train
