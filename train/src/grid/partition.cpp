// How arrays are cut into blocks, and which rank holds which: partitions in general, the layouts
// that layers ask for, and the turned layouts of convolutions by channel. All of it is arithmetic:
// nothing here knows memory or communicators.
//
// An array is cut into n x h x w x c blocks; every block is held by equally many ranks, so that
// messages and memory are balanced. A partition is a value: two are equal if every rank holds the
// same box.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/train/partition.hpp>

#include "grid/layout.hpp"

namespace rondo::train {
namespace {

[[noreturn]] void refuse_partition(const std::string& what) {
  throw std::invalid_argument("partition: " + what);
}

void check(const tensor::Shape& extents, const Parts& parts, std::size_t ranks) {
  if (std::min({extents.n, extents.h, extents.w, extents.c}) < 0) {
    refuse_partition("an extent is negative");
  }
  if (std::min({parts.n, parts.h, parts.w, parts.c}) < 1) {
    refuse_partition("every dimension needs at least one part");
  }
  const auto blocks = static_cast<std::size_t>(parts.blocks());
  if (ranks == 0 || ranks % blocks != 0) {
    refuse_partition(std::to_string(blocks) + " blocks cannot be held equally often by " +
                     std::to_string(ranks) + " ranks");
  }
}

/// The ranks of block 0, then those of block 1, and so on.
std::vector<int> by_block(const std::vector<int>& block_of_rank, int blocks) {
  std::vector<int> count(static_cast<std::size_t>(blocks));
  for (std::size_t rank = 0; rank < block_of_rank.size(); ++rank) {
    const int block = block_of_rank[rank];
    if (block < 0 || block >= blocks) {
      refuse_partition("rank " + std::to_string(rank) + " holds block " + std::to_string(block) +
                       " of " + std::to_string(blocks));
    }
    ++count[static_cast<std::size_t>(block)];
  }
  // Blocks that are held unequally often would give some ranks more to send than others.
  const int holders = static_cast<int>(block_of_rank.size()) / blocks;
  for (std::size_t block = 0; block < count.size(); ++block) {
    if (count[block] == holders) continue;
    refuse_partition("block " + std::to_string(block) + " is held by " +
                     std::to_string(count[block]) + " ranks instead of " + std::to_string(holders));
  }
  // By block, then by rank: the i-th holder of a block is the same on every rank that asks.
  std::vector<int> ranks(block_of_rank.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::sort(ranks, {}, [&](int rank) {
    return std::pair(block_of_rank[static_cast<std::size_t>(rank)], rank);
  });
  return ranks;
}

void check_grid(const ProcessGrid& grid, const Parts& within) {
  if (grid.pr < 1 || grid.pc < 1) {
    throw std::invalid_argument("process grid: " + std::to_string(grid.pr) + " x " +
                                std::to_string(grid.pc) + " has no ranks");
  }
  if (within.blocks() < 1 || grid.pr % within.blocks() != 0) {
    throw std::invalid_argument("process grid: replicas of " + std::to_string(grid.pr) +
                                " ranks cannot share " + std::to_string(within.blocks()) +
                                " blocks evenly");
  }
}

void check_channels(const Partition& x, const ChannelGrid& grid) {
  if (grid.channels > 0 && grid.filters > 0 && x.parts().c == grid.ranks()) return;
  throw std::invalid_argument("channel grid: " + std::to_string(grid.channels) + " x " +
                              std::to_string(grid.filters) + " does not fit an input in " +
                              std::to_string(x.parts().c) + " parts along C");
}

/// The same cuts of rows, columns and samples, but other parts along C: `part_of(position)` of
/// them.
template <class PartOf>
Partition with_channel_parts(const Partition& x, tensor::Shape extents, ChannelGrid grid, int parts,
                             PartOf part_of) {
  std::vector<int> block_of_rank;
  for (int rank = 0; rank < x.ranks(); ++rank) {
    const int tile = x.block_of(rank) / grid.ranks();
    block_of_rank.push_back(tile * parts + part_of(position_of(x, grid, rank)));
  }
  Parts cuts = x.parts();
  cuts.c = parts;
  return {extents, cuts, std::move(block_of_rank)};
}

ChannelPosition place_of_block(int block, const ChannelGrid& grid) {
  const int channel_block = block % grid.ranks();
  return {channel_block / grid.filters, channel_block % grid.filters};
}

}  // namespace

Partition::Partition(tensor::Shape extents, Parts parts, std::vector<int> block_of_rank)
    : extents_(extents), parts_(parts), block_of_rank_(std::move(block_of_rank)) {
  check(extents_, parts_, block_of_rank_.size());
  ranks_by_block_ = by_block(block_of_rank_, blocks());
}

int Partition::block_of(int rank) const {
  if (rank < 0 || rank >= ranks()) {
    throw std::out_of_range("partition: rank " + std::to_string(rank) + " of " +
                            std::to_string(ranks()));
  }
  return block_of_rank_[static_cast<std::size_t>(rank)];
}

Box Partition::box(int block) const {
  if (block < 0 || block >= blocks()) {
    throw std::out_of_range("partition: block " + std::to_string(block) + " of " +
                            std::to_string(blocks()));
  }
  return box_of_block(extents_, parts_, block);
}

std::span<const int> Partition::ranks_of(int block) const {
  if (block < 0 || block >= blocks()) {
    throw std::out_of_range("partition: block " + std::to_string(block) + " of " +
                            std::to_string(blocks()));
  }
  const auto count = static_cast<std::size_t>(holders());
  return std::span(ranks_by_block_).subspan(static_cast<std::size_t>(block) * count, count);
}

int Partition::holder_index(int rank) const {
  const auto holders = ranks_of(block_of(rank));
  return static_cast<int>(std::ranges::find(holders, rank) - holders.begin());
}

std::vector<Box> Partition::boxes() const {
  std::vector<Box> all;
  all.reserve(block_of_rank_.size());
  for (const int block : block_of_rank_) all.push_back(box(block));
  return all;
}

Partition Partition::with_extents(tensor::Shape extents) const {
  return {extents, parts_, block_of_rank_};
}

// Layouts of activations.

// Adjacent ranks of a replica hold adjacent blocks, or the same one where there are fewer blocks.
// All layouts of activations but the turned ones are this, with other parts.
Partition on_grid(tensor::Shape extents, ProcessGrid grid, Parts within) {
  check_grid(grid, within);
  const int blocks = within.blocks();
  std::vector<int> block_of_rank;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    block_of_rank.push_back(grid.replica_of(rank) * blocks +
                            grid.position_of(rank) * blocks / grid.pr);
  }
  within.n *= grid.pc;
  return {extents, within, block_of_rank};
}

Partition replicated(tensor::Shape extents, int ranks) {
  return on_grid(extents, {.pr = ranks}, {});
}

Partition by_sample(tensor::Shape extents, int ranks) {
  return on_grid(extents, {.pc = ranks}, {});
}

Partition by_replica(tensor::Shape extents, ProcessGrid grid) { return on_grid(extents, grid, {}); }

Partition by_channel(tensor::Shape extents, ProcessGrid grid) {
  return on_grid(extents, grid, {.c = grid.pr});
}

// Convolutions by channel.

ChannelPosition position_of(const Partition& x, ChannelGrid grid, int rank) {
  check_channels(x, grid);
  return place_of_block(x.block_of(rank), grid);
}

// Rank (i_C, i_F) held block i_C * p_F + i_F of x; of y it holds block i_F * p_C + i_C.
Partition output_of(const Partition& x, ChannelGrid grid, tensor::Shape y) {
  check_channels(x, grid);
  std::vector<int> block_of_rank;
  for (int rank = 0; rank < x.ranks(); ++rank) {
    const int block = x.block_of(rank);
    const ChannelPosition place = place_of_block(block, grid);
    block_of_rank.push_back(block - block % grid.ranks() + place.filter * grid.channels +
                            place.channel);
  }
  return {y, x.parts(), block_of_rank};
}

// The channels of all ranks that share the rank's block of channels: what it convolves.
Box gathered_input(const Partition& x, ChannelGrid grid, int rank) {
  Box box = x.box_of(rank);
  box.c = even_range(x.extents().c, grid.channels, position_of(x, grid, rank).channel);
  return box;
}

// The filters that the rank computes, summed over its channels alone.
Box partial_output(const Partition& x, ChannelGrid grid, tensor::Shape y, int rank) {
  Box box = x.with_extents(y).box_of(rank);
  box.c = even_range(y.c, grid.filters, position_of(x, grid, rank).filter);
  return box;
}

Partition gathered_inputs(const Partition& x, ChannelGrid grid) {
  return with_channel_parts(x, x.extents(), grid, grid.channels,
                            [](ChannelPosition at) { return at.channel; });
}

Partition gathered_outputs(const Partition& x, ChannelGrid grid, tensor::Shape y) {
  return with_channel_parts(x, y, grid, grid.filters, [](ChannelPosition at) { return at.filter; });
}

}  // namespace rondo::train
