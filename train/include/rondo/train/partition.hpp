#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/export.hpp>

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

/// The indices that both have in common; possibly empty.
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

/// P ranks as pc replicas of pr ranks. A replica is a group of ranks that holds one copy of the
/// model. Replicas split the samples; the ranks of a replica split what a layer does for the
/// replica's samples. Ranks of a replica are adjacent: rank = replica * pr + position.
struct ProcessGrid {
  int pr = 1;  ///< ranks of a replica
  int pc = 1;  ///< replicas

  [[nodiscard]] constexpr int ranks() const noexcept { return pr * pc; }
  [[nodiscard]] constexpr int replica_of(int rank) const noexcept { return rank / pr; }
  [[nodiscard]] constexpr int position_of(int rank) const noexcept { return rank % pr; }
  [[nodiscard]] constexpr int rank_at(int replica, int position) const noexcept {
    return replica * pr + position;
  }
  [[nodiscard]] constexpr bool operator==(const ProcessGrid&) const noexcept = default;
};

/// Into how many parts each dimension of an array is cut, by even_range().
struct Parts {
  int n = 1;
  int h = 1;
  int w = 1;
  int c = 1;

  [[nodiscard]] constexpr int blocks() const noexcept { return n * h * w * c; }
  [[nodiscard]] constexpr bool operator==(const Parts&) const noexcept = default;
};

/// Which box of an array [N,H,W,C] each rank holds.
///
/// The array is cut into blocks, numbered with c fastest: block = ((n * h_parts + h) * w_parts + w)
/// * c_parts + c. A map gives each rank its block. Every block is held by the same number of ranks,
/// `holders()`, so every element is held exactly so often; blocks may be empty where an extent is
/// less than its parts. A value: it knows neither memory nor communicators.
class RONDO_TRAIN_API Partition {
 public:
  /// Rank r holds block `block_of_rank[r]`. Throws std::invalid_argument when an extent is
  /// negative, a part count is not positive, or blocks are not all held equally often.
  Partition(tensor::Shape extents, Parts parts, std::vector<int> block_of_rank);

  [[nodiscard]] const tensor::Shape& extents() const noexcept { return extents_; }
  [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(block_of_rank_.size()); }
  [[nodiscard]] int blocks() const noexcept { return parts_.blocks(); }
  /// Ranks that hold the same block.
  [[nodiscard]] int holders() const noexcept { return ranks() / blocks(); }

  /// 0 <= rank < ranks(), 0 <= block < blocks(); else std::out_of_range.
  [[nodiscard]] int block_of(int rank) const;
  [[nodiscard]] Box box(int block) const;
  [[nodiscard]] Box box_of(int rank) const { return box(block_of(rank)); }
  /// In rising order.
  [[nodiscard]] std::span<const int> ranks_of(int block) const;
  /// The position of `rank` among the ranks that hold the same block, from 0. Ranks of equal index
  /// hold different blocks, which together make up the array once.
  [[nodiscard]] int holder_index(int rank) const;
  /// box_of() all ranks.
  [[nodiscard]] std::vector<Box> boxes() const;

  /// The same cuts and the same map for another array: how a layer that moves nothing between
  /// ranks turns the partition of what it reads into that of what it writes.
  [[nodiscard]] Partition with_extents(tensor::Shape extents) const;

  /// Equal cuts, maps and extents.
  [[nodiscard]] bool operator==(const Partition&) const = default;

 private:
  tensor::Shape extents_;
  Parts parts_;
  std::vector<int> block_of_rank_;
  std::vector<int> ranks_by_block_;  ///< holders() for each block
};

// The layouts of activations. A layer's x and y are laid out alike (Partition::with_extents), but
// for stationary-W convolutions: see ChannelGrid. Arguments that do not fit together throw
// std::invalid_argument.

/// All ranks hold everything.
[[nodiscard]] RONDO_TRAIN_API Partition replicated(tensor::Shape extents, int ranks);

/// Samples over all ranks: sample parallelism. A rank's samples are among those of its replica on
/// any grid of as many ranks.
[[nodiscard]] RONDO_TRAIN_API Partition by_sample(tensor::Shape extents, int ranks);

/// Samples over the replicas; the ranks of a replica hold the same. A fully connected layer of the
/// 1.5D algorithm reads this layout, and its output has it after the allgather.
[[nodiscard]] RONDO_TRAIN_API Partition by_replica(tensor::Shape extents, ProcessGrid grid);

/// Samples over the replicas, channels over the ranks of a replica: stationary-X and -Y, and the
/// first input of a chain of stationary-W layers.
[[nodiscard]] RONDO_TRAIN_API Partition by_channel(tensor::Shape extents, ProcessGrid grid);

/// Samples over the replicas, a replica's box cut by `within` over its ranks in block order. Where
/// there are fewer blocks than ranks, adjacent ranks hold the same. The ones above are cases of it.
[[nodiscard]] RONDO_TRAIN_API Partition on_grid(tensor::Shape extents, ProcessGrid grid,
                                                Parts within);

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
//
// Rows and columns may be cut besides, into h x w tiles: a replica then has h w p ranks. All of
// this holds for the p ranks of one tile, which are adjacent, and what they gather has a halo,
// which they exchange with those of other tiles that have gathered the same channels.

/// p_C x p_F.
struct ChannelGrid {
  int channels = 1;  ///< p_C: parts of C
  int filters = 1;   ///< p_F: parts of F

  [[nodiscard]] constexpr int ranks() const noexcept { return channels * filters; }
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

/// Where a rank stands. Ranks with the same block in n, h and w and the same `channel` allgather x,
/// in the order of `filter`; ranks with that block and the same `filter` reduce-scatter y, in the
/// order of `channel`. Throws as output_of().
[[nodiscard]] RONDO_TRAIN_API ChannelPosition position_of(const Partition& x, ChannelGrid grid,
                                                          int rank);

/// The part of x that a rank has after the allgather: part i_C of p_C of the channels.
[[nodiscard]] RONDO_TRAIN_API Box gathered_input(const Partition& x, ChannelGrid grid, int rank);

/// The part of y of which a rank has partial sums before the reduce-scatter: part i_F of p_F of the
/// channels, where y's extents are `y`.
[[nodiscard]] RONDO_TRAIN_API Box partial_output(const Partition& x, ChannelGrid grid,
                                                 tensor::Shape y, int rank);

/// The same of all ranks: how x lies after its allgather, and dy after its own. Ranks that have
/// gathered the same are holders of one block.
[[nodiscard]] RONDO_TRAIN_API Partition gathered_inputs(const Partition& x, ChannelGrid grid);
[[nodiscard]] RONDO_TRAIN_API Partition gathered_outputs(const Partition& x, ChannelGrid grid,
                                                         tensor::Shape y);

/// Over what the work of a convolution or fully connected layer is split. All other layers follow
/// the layout of what they read.
enum class SplitKind : std::uint8_t {
  sample,   ///< samples over all ranks of the grid
  replica,  ///< samples over the replicas; all ranks of a replica do the same
  space,    ///< samples over the replicas, rows and columns of the image within a replica
  channel,  ///< samples over the replicas, channels and filters within a replica; of a fully
            ///< connected layer its outputs (the 1.5D algorithm)
  space_and_channel,  ///< of a convolution both: within a replica tiles of rows and columns, and
                      ///< over the ranks of a tile channels and filters
};

/// Are rows or columns of images cut within a replica?
[[nodiscard]] constexpr bool cuts_space(SplitKind kind) noexcept {
  return kind == SplitKind::space || kind == SplitKind::space_and_channel;
}

/// Are channels cut within a replica?
[[nodiscard]] constexpr bool cuts_channels(SplitKind kind) noexcept {
  return kind == SplitKind::channel || kind == SplitKind::space_and_channel;
}

/// How one layer is split on a ProcessGrid. Numbers of parts that are not the kind's are 1.
struct LayerSplit {
  SplitKind kind = SplitKind::sample;
  int h = 1;                  ///< where space is cut: parts of the rows
  int w = 1;                  ///< where space is cut: parts of the columns
  ChannelGrid channels = {};  ///< where channels are cut: p_C x p_F

  /// Ranks of a replica that split the layer: one for each part.
  [[nodiscard]] constexpr int ranks() const noexcept { return h * w * channels.ranks(); }

  [[nodiscard]] constexpr bool operator==(const LayerSplit&) const noexcept = default;
};

/// Which ranks share the statistics of batch norm.
enum class BatchNormScope : std::uint8_t { rank, replica, all };

}  // namespace rondo::train
