#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rondo/tensor/shape.hpp>
#include <rondo/train/box.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// P ranks as pc replicas of pr ranks. A replica is a group of ranks that holds one copy of the
/// model. Replicas split the samples; the ranks of a replica split what a layer does for the
/// replica's samples. Those of a replica are adjacent: rank = replica * pr + position.
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
  /// The how manieth holder of its block a rank is, in rank order. Ranks of equal index hold
  /// different blocks, which together make up the array once.
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
// for stationary-W convolutions: see channel_grid.hpp. Arguments that do not fit together throw
// std::invalid_argument.

/// All ranks hold everything.
[[nodiscard]] RONDO_TRAIN_API Partition replicated(tensor::Shape extents, int ranks);

/// Samples over all ranks: sample parallelism. A rank's samples are among those of its replica on
/// any grid of as many ranks.
[[nodiscard]] RONDO_TRAIN_API Partition by_sample(tensor::Shape extents, int ranks);

/// Samples over the replicas; the ranks of a replica hold the same. What a fully connected layer of
/// the 1.5D algorithm reads, and what it has written after its allgather.
[[nodiscard]] RONDO_TRAIN_API Partition by_group(tensor::Shape extents, ProcessGrid grid);

/// Samples over the replicas, channels over the ranks of a replica: stationary-X and -Y, and the
/// first input of a chain of stationary-W layers.
[[nodiscard]] RONDO_TRAIN_API Partition by_channel(tensor::Shape extents, ProcessGrid grid);

/// Samples over the replicas, rows and columns of the image over the ranks of a replica, which are
/// h_parts * w_parts. Position = h * w_parts + w.
[[nodiscard]] RONDO_TRAIN_API Partition by_space(tensor::Shape extents, ProcessGrid grid,
                                                 int h_parts, int w_parts);

/// Samples over the replicas, a replica's box cut by `within` over its ranks in block order. Where
/// there are fewer blocks than ranks, adjacent ranks hold the same. The ones above are cases of it.
[[nodiscard]] RONDO_TRAIN_API Partition on_grid(tensor::Shape extents, ProcessGrid grid,
                                                Parts within);

}  // namespace rondo::train
