#pragma once

#include <bit>
#include <cstddef>

namespace rondo::transport::schedule {

// Recursive doubling: in round k a rank exchanges what it holds with the one whose position
// differs in bit k, so that after log2 rounds all hold everything. When `size` is no power of two,
// the first 2 * extra ranks fold in pairs: the odd one gives its data to the even one, and gets
// the result at the end. Positions follow the ranks, so what a position holds after k rounds is
// of a run of consecutive ranks, and joining the lower run with the upper one is joining in rank
// order.

/// What a rank does in recursive doubling.
enum class FoldRole : unsigned char {
  alone,   ///< takes part for itself
  keeper,  ///< takes part for itself and rank + 1
  guest,   ///< rank - 1 takes part for it
};

struct Folding {
  std::size_t positions = 1;  ///< the largest power of two that is not above the size
  std::size_t extra = 0;      ///< pairs that fold

  [[nodiscard]] constexpr FoldRole role_of(std::size_t rank) const noexcept {
    if (rank >= 2 * extra) return FoldRole::alone;
    return rank % 2 == 0 ? FoldRole::keeper : FoldRole::guest;
  }
  /// Not of a guest.
  [[nodiscard]] constexpr std::size_t position_of(std::size_t rank) const noexcept {
    return rank < 2 * extra ? rank / 2 : rank - extra;
  }
  [[nodiscard]] constexpr std::size_t rank_at(std::size_t position) const noexcept {
    return position < extra ? 2 * position : position + extra;
  }
  [[nodiscard]] constexpr std::size_t rounds() const noexcept {
    return static_cast<std::size_t>(std::countr_zero(positions));
  }
  /// With whom `rank`, no guest, exchanges in round `round`.
  [[nodiscard]] constexpr std::size_t partner_of(std::size_t rank,
                                                 std::size_t round) const noexcept {
    return rank_at(position_of(rank) ^ (std::size_t{1} << round));
  }
};

[[nodiscard]] constexpr Folding fold(std::size_t size) noexcept {
  const std::size_t positions = std::bit_floor(size);
  return {.positions = positions, .extra = size - positions};
}

}  // namespace rondo::transport::schedule
