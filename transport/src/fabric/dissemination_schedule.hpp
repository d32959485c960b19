#pragma once

#include <bit>
#include <cstddef>

namespace rondo::transport::schedule {

// Dissemination: in round k everyone tells the rank 2^k to the right, once it has heard from the
// one 2^(k-1) to the left. After all rounds everyone has heard, by way of others, from all.

[[nodiscard]] constexpr std::size_t dissemination_rounds(std::size_t size) noexcept {
  return static_cast<std::size_t>(std::bit_width(size - 1));
}
[[nodiscard]] constexpr std::size_t dissemination_target(std::size_t rank, std::size_t size,
                                                         std::size_t round) noexcept {
  return (rank + (std::size_t{1} << round)) % size;
}
[[nodiscard]] constexpr std::size_t dissemination_source(std::size_t rank, std::size_t size,
                                                         std::size_t round) noexcept {
  return (rank + size - (std::size_t{1} << round)) % size;
}

}  // namespace rondo::transport::schedule
