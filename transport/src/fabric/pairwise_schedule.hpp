#pragma once

#include <cstddef>

namespace rondo::transport::schedule {

// Pairwise exchange: in each of `size` rounds every rank has one partner, whose partner it is, and
// over all rounds it has every rank once, itself included. So a pair can swap its parts where they
// lie.

[[nodiscard]] constexpr std::size_t pairwise_rounds(std::size_t size) noexcept { return size; }

[[nodiscard]] constexpr std::size_t pairwise_partner(std::size_t rank, std::size_t size,
                                                     std::size_t round) noexcept {
  return (round + size - rank) % size;
}

}  // namespace rondo::transport::schedule
