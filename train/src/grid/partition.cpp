#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/train/partition.hpp>

namespace rondo::train {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("partition: " + what);
}

void check(const tensor::Shape& extents, const Parts& parts, std::size_t ranks) {
  if (std::min({extents.n, extents.h, extents.w, extents.c}) < 0) {
    refuse("an extent is negative");
  }
  if (std::min({parts.n, parts.h, parts.w, parts.c}) < 1) {
    refuse("every dimension needs at least one part");
  }
  const auto blocks = static_cast<std::size_t>(parts.blocks());
  if (ranks == 0 || ranks % blocks != 0) {
    refuse(std::to_string(blocks) + " blocks cannot be held equally often by " +
           std::to_string(ranks) + " ranks");
  }
}

/// The ranks of block 0, then those of block 1, and so on.
std::vector<int> by_block(const std::vector<int>& block_of_rank, int blocks) {
  std::vector<int> count(static_cast<std::size_t>(blocks));
  for (std::size_t rank = 0; rank < block_of_rank.size(); ++rank) {
    const int block = block_of_rank[rank];
    if (block < 0 || block >= blocks) {
      refuse("rank " + std::to_string(rank) + " holds block " + std::to_string(block) + " of " +
             std::to_string(blocks));
    }
    ++count[static_cast<std::size_t>(block)];
  }
  const int replicas = static_cast<int>(block_of_rank.size()) / blocks;
  for (std::size_t block = 0; block < count.size(); ++block) {
    if (count[block] == replicas) continue;
    refuse("block " + std::to_string(block) + " is held by " + std::to_string(count[block]) +
           " ranks instead of " + std::to_string(replicas));
  }
  std::vector<int> ranks(block_of_rank.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::sort(ranks, {}, [&](int rank) {
    return std::pair(block_of_rank[static_cast<std::size_t>(rank)], rank);
  });
  return ranks;
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
  const int column = block / parts_.c;
  const int row = column / parts_.w;
  return {even_range(extents_.n, parts_.n, row / parts_.h),
          even_range(extents_.h, parts_.h, row % parts_.h),
          even_range(extents_.w, parts_.w, column % parts_.w),
          even_range(extents_.c, parts_.c, block % parts_.c)};
}

std::span<const int> Partition::ranks_of(int block) const {
  if (block < 0 || block >= blocks()) {
    throw std::out_of_range("partition: block " + std::to_string(block) + " of " +
                            std::to_string(blocks()));
  }
  const auto count = static_cast<std::size_t>(replicas());
  return std::span(ranks_by_block_).subspan(static_cast<std::size_t>(block) * count, count);
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

}  // namespace rondo::train
