#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/cache_line.hpp"
#include "collective/blocks.hpp"

namespace rondo::transport::schedule {

// Decides who talks to whom in which step, and how data is cut into messages: pure arithmetic, the
// same on all ranks, tested for all ranks of all sizes up to 64.

// --- Ring ---
//
// Everyone sends to the right and receives from the left. The data is cut into one chunk per rank.
// In each of the first size - 1 steps a chunk's partial sum moves on by one rank, and is joined
// with what that rank has of it: it starts right of the rank it belongs to and ends there. In each
// of the next size - 1 steps the finished chunks move on. Step t >= 1 sends what step t - 1 has
// received.

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

/// The chunks that `rank` moves in step `step` < 2 * (size - 1).
[[nodiscard]] constexpr RingStep ring_step(std::size_t rank, std::size_t size,
                                           std::size_t step) noexcept {
  return {.send_chunk = (rank + 2 * size - 1 - step) % size,
          .receive_chunk = (rank + 2 * size - 2 - step) % size};
}

/// Chunk `chunk` of the `bytes` of an allreduce: even parts, cut on cache lines.
[[nodiscard]] constexpr Range ring_chunk(std::size_t bytes, std::size_t ranks,
                                         std::size_t chunk) noexcept {
  return slice(bytes, ranks, chunk, cache_line_bytes);
}

// --- Recursive doubling ---
//
// In round k a rank exchanges what it holds with the one whose position differs in bit k, so that
// after log2 rounds all hold everything. When `size` is no power of two, the first 2 * extra ranks
// fold in pairs: the odd one sends its data to the even one, and receives the result at the end.
// Positions follow the ranks, so what a position holds after k rounds is of a run of consecutive
// ranks, and joining the lower run with the upper one is joining in rank order.

/// The role of a rank in recursive doubling.
enum class FoldRole : unsigned char {
  single,  ///< takes part for itself
  proxy,   ///< takes part for itself and rank + 1
  folded,  ///< rank - 1 takes part for it
};

struct Folding {
  std::size_t positions = 1;  ///< the largest power of two that is not above the size
  std::size_t extra = 0;      ///< pairs that fold

  [[nodiscard]] constexpr FoldRole role_of(std::size_t rank) const noexcept {
    if (rank >= 2 * extra) return FoldRole::single;
    return rank % 2 == 0 ? FoldRole::proxy : FoldRole::folded;
  }
  /// Not of a folded rank.
  [[nodiscard]] constexpr std::size_t position_of(std::size_t rank) const noexcept {
    return rank < 2 * extra ? rank / 2 : rank - extra;
  }
  [[nodiscard]] constexpr std::size_t rank_at(std::size_t position) const noexcept {
    return position < extra ? 2 * position : position + extra;
  }
  [[nodiscard]] constexpr std::size_t rounds() const noexcept {
    return static_cast<std::size_t>(std::countr_zero(positions));
  }
  /// The rank with which `rank`, which is not folded, exchanges in round `round`.
  [[nodiscard]] constexpr std::size_t partner_of(std::size_t rank,
                                                 std::size_t round) const noexcept {
    return rank_at(position_of(rank) ^ (std::size_t{1} << round));
  }
};

[[nodiscard]] constexpr Folding fold(std::size_t size) noexcept {
  const std::size_t positions = std::bit_floor(size);
  return {.positions = positions, .extra = size - positions};
}

// --- Recursive halving ---
//
// The positions and partners are those of recursive doubling. In round k the two of a pair cut what
// both hold in halves: one keeps the lower half, the other the upper one, and each sends the half
// that it gives away and joins what it receives with the half that it keeps. So after all rounds a
// position has the sum of one part of the data. The rounds back, from the last to the first,
// gather: each sends what it has, and receives the half that it gave away. An element is joined in
// the order of recursive doubling, so its bits are the same.

/// The two halves of the data that a pair has after a round: a position sends `given` and receives
/// `kept`; on the way back it sends `kept` and receives `given`.
struct HalvingRound {
  Range kept;
  Range given;
};

/// The halves that `position` keeps and gives away in round `round`, of so many bytes in all: cut
/// on cache lines, and empty where there is no line left.
[[nodiscard]] constexpr HalvingRound halving_round(std::size_t bytes, std::size_t position,
                                                   std::size_t round) noexcept {
  HalvingRound halves{.kept = {0, bytes}, .given = {}};
  for (std::size_t k = 0; k <= round; ++k) {
    const Range whole = halves.kept;
    const std::size_t middle = whole.begin + slice(whole.size(), 2, 0, cache_line_bytes).end;
    const Range lower{whole.begin, middle};
    const Range upper{middle, whole.end};
    const bool keeps_upper = (position >> k & 1U) != 0;
    halves = keeps_upper ? HalvingRound{.kept = upper, .given = lower}
                         : HalvingRound{.kept = lower, .given = upper};
  }
  return halves;
}

// --- Binomial tree ---

/// A binomial tree of `size` ranks, as `rank` sees it.
///
/// Distances from the root count upwards from rank `root`, around the end. The rank at distance d
/// has its parent at d without its lowest bit, and children at d + 1, d + 2, d + 4, ... below that
/// bit: child i is the root of a run of 2^i distances. So the subtree of a rank is a run of
/// consecutive distances, and joining own data, child 0, child 1, ... joins them in order.
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

// --- Dissemination ---
//
// In round k every rank sends to the rank 2^k to the right, once it has received from the one
// 2^(k-1) to the left. After all rounds everyone has heard, by way of others, from all.

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

// --- Pairwise exchange ---
//
// In each of `size` rounds every rank has one partner, whose partner it is, and over all rounds it
// has every rank once, itself included. So the two of a pair can swap their parts where they lie.

[[nodiscard]] constexpr std::size_t pairwise_rounds(std::size_t size) noexcept { return size; }

[[nodiscard]] constexpr std::size_t pairwise_partner(std::size_t rank, std::size_t size,
                                                     std::size_t round) noexcept {
  return (round + size - rank) % size;
}

// --- All of them ---

/// With how many others a rank exchanges messages in all algorithms but the pairwise exchange, at
/// most: those at distances 1, 2, 4, ... on either side (rings, trees with any root,
/// dissemination), and its partners in recursive doubling and halving.
[[nodiscard]] constexpr std::size_t most_partners(std::size_t size) noexcept {
  if (size < 2) return 0;
  const auto rounds = static_cast<std::size_t>(std::bit_width(size - 1));
  return std::min(size - 1, 3 * rounds);
}

// --- Segments ---
//
// A long message is cut into segments, of which a few are in flight: while one is reduced, others
// are on their way.

/// Messages that one sequence of segments may have in flight.
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
            cache_line_bytes)),
        count_(count_in(bytes)) {}

  /// The number of segments of the whole.
  [[nodiscard]] constexpr std::size_t count() const noexcept { return count_; }
  /// The longest segment of something of `bytes` bytes, in whole cache lines.
  [[nodiscard]] constexpr std::size_t longest_in(std::size_t bytes) const noexcept {
    return std::min(segment_bytes_, whole_lines(bytes));
  }

  /// The number of segments of something else that is cut like it.
  [[nodiscard]] constexpr std::size_t count_in(std::size_t bytes) const noexcept {
    return (bytes + segment_bytes_ - 1) / segment_bytes_;
  }
  /// Segment `index` of something of `bytes` bytes; empty beyond its last.
  [[nodiscard]] constexpr Range range(std::size_t index, std::size_t bytes) const noexcept {
    const std::size_t begin = std::min(bytes, index * segment_bytes_);
    return {begin, std::min(bytes, begin + segment_bytes_)};
  }

 private:
  [[nodiscard]] static constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
    return round_up(bytes, cache_line_bytes);
  }

  std::size_t segment_bytes_ = cache_line_bytes;
  std::size_t count_ = 0;
};

}  // namespace rondo::transport::schedule
