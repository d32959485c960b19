#pragma once

#include <cstddef>

namespace rondo::transport::schedule {

// A ring of `size` ranks: everyone sends to the right and receives from the left. The data is cut
// into one chunk per rank. In each of the first size - 1 steps a chunk's partial sum moves on by
// one rank, and is joined with what that rank has of it: it starts right of the rank it belongs
// to and ends there. In each of the next size - 1 steps the finished chunks move on. Step t >= 1
// sends what step t - 1 has received.

[[nodiscard]] constexpr std::size_t right_of(std::size_t rank, std::size_t size) noexcept {
  return rank + 1 == size ? 0 : rank + 1;
}
[[nodiscard]] constexpr std::size_t left_of(std::size_t rank, std::size_t size) noexcept {
  return rank == 0 ? size - 1 : rank - 1;
}

/// Steps of each half: to reduce and scatter, and to gather.
[[nodiscard]] constexpr std::size_t ring_half(std::size_t size) noexcept { return size - 1; }

struct RingStep {
  std::size_t send_chunk = 0;
  std::size_t receive_chunk = 0;

  [[nodiscard]] constexpr bool operator==(const RingStep&) const noexcept = default;
};

/// What `rank` moves in step `step` < 2 * (size - 1).
[[nodiscard]] constexpr RingStep ring_step(std::size_t rank, std::size_t size,
                                           std::size_t step) noexcept {
  return {.send_chunk = (rank + 2 * size - 1 - step) % size,
          .receive_chunk = (rank + 2 * size - 2 - step) % size};
}

}  // namespace rondo::transport::schedule
