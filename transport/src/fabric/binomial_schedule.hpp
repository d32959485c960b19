#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace rondo::transport::schedule {

// A binomial tree of `size` ranks. Distances from the root count upwards from rank `root`, around
// the end. Whoever is at distance d has its parent at d without its lowest bit, and children at
// d + 1, d + 2, d + 4, ... below that bit: child i is the root of a run of 2^i distances. So the
// subtree of a rank is a run of consecutive distances, and joining own data, child 0, child 1, ...
// joins them in order.

class Binomial {
 public:
  constexpr Binomial(std::size_t rank, std::size_t root, std::size_t size) noexcept
      : distance_((rank + size - root) % size), root_(root), size_(size) {}

  [[nodiscard]] constexpr bool is_root() const noexcept { return distance_ == 0; }
  /// Not of the root.
  [[nodiscard]] constexpr std::size_t parent() const noexcept {
    return rank_at(distance_ & (distance_ - 1));
  }
  [[nodiscard]] constexpr std::size_t children() const noexcept {
    const auto below = is_root() ? static_cast<std::size_t>(std::bit_width(size_ - 1))
                                 : static_cast<std::size_t>(std::countr_zero(distance_));
    // As many as have their root inside the tree.
    return std::min(below, static_cast<std::size_t>(std::bit_width(size_ - 1 - distance_)));
  }
  /// From the smallest subtree to the largest.
  [[nodiscard]] constexpr std::size_t child(std::size_t index) const noexcept {
    return rank_at(distance_ + (std::size_t{1} << index));
  }

 private:
  [[nodiscard]] constexpr std::size_t rank_at(std::size_t distance) const noexcept {
    return (distance + root_) % size_;
  }

  std::size_t distance_;
  std::size_t root_;
  std::size_t size_;
};

}  // namespace rondo::transport::schedule
