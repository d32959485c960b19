#pragma once

#include <rondo/train/box.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

// Convolutions whose channels and filters are split over the ranks of a replica: Dryden, Maruyama,
// Moon, Benson, Snir, Van Essen, "Channel and Filter Parallelism for Large-Scale CNN Training",
// SC 2019.
//
// A replica of p = p_C x p_F ranks splits the weights w[F,C,k,k] into p_C parts of C and p_F parts
// of F. Rank (i_C, i_F) holds block i_C * p_F + i_F of x along C, and block i_F * p_C + i_C of y
// along F. So the p_F ranks of an i_C hold, together, part i_C of x: they allgather x. The p_C
// ranks of an i_F hold part i_F of y: they reduce-scatter y. dy and dx are laid out as y and x.
//
//     stationary-X   p x 1    nothing to gather, y is reduce-scattered over all ranks
//     stationary-Y   1 x p    x is allgathered over all ranks, y needs no reduction
//     stationary-W   else     y's blocks are those of x transposed
//
// Which rank of the replica is (i_C, i_F) follows from the block of x that it holds. A chain of two
// W layers p_C x p_F and p_F x p_C therefore ends in the layout in which it began.

/// p_C x p_F.
struct ChannelGrid {
  int channels = 1;  ///< p_C: parts of C
  int filters = 1;   ///< p_F: parts of F

  [[nodiscard]] constexpr int ranks() const noexcept { return channels * filters; }
  /// The grid that leads back.
  [[nodiscard]] constexpr ChannelGrid transposed() const noexcept { return {filters, channels}; }
  [[nodiscard]] constexpr bool operator==(const ChannelGrid&) const noexcept = default;
};

/// (i_C, i_F).
struct ChannelPosition {
  int channel = 0;
  int filter = 0;

  [[nodiscard]] constexpr bool operator==(const ChannelPosition&) const noexcept = default;
};

/// How y lies after a convolution on `grid` whose input lies as `x`: the cuts of x on y's extents,
/// with its channel blocks transposed. Throws std::invalid_argument unless x has grid.ranks() parts
/// along C. On p x 1 and 1 x p it is x.with_extents(y).
[[nodiscard]] RONDO_TRAIN_API Partition output_of(const Partition& x, ChannelGrid grid,
                                                  tensor::Shape y);

/// Where a rank stands. Those of equal block in n, h and w and of equal `channel` allgather x, in
/// the order of `filter`; those of equal `filter` reduce-scatter y, in the order of `channel`.
/// Throws as output_of().
[[nodiscard]] RONDO_TRAIN_API ChannelPosition position_of(const Partition& x, ChannelGrid grid,
                                                          int rank);

/// What a rank has of x after the allgather: part i_C of p_C of the channels.
[[nodiscard]] RONDO_TRAIN_API Box gathered_input(const Partition& x, ChannelGrid grid, int rank);

/// Of what a rank has partial sums before the reduce-scatter: part i_F of p_F of y's channels,
/// where y's extents are `y`.
[[nodiscard]] RONDO_TRAIN_API Box partial_output(const Partition& x, ChannelGrid grid,
                                                 tensor::Shape y, int rank);

}  // namespace rondo::train
