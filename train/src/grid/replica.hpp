#pragma once

#include <algorithm>

#include <rondo/train/partition.hpp>

namespace rondo::train {

/// The how manieth holder of its block a rank is, in rank order. Ranks of equal replica hold
/// different blocks, which together make up the array once.
[[nodiscard]] inline int replica_of(const Partition& partition, int rank) {
  const auto holders = partition.ranks_of(partition.block_of(rank));
  return static_cast<int>(std::ranges::find(holders, rank) - holders.begin());
}

}  // namespace rondo::train
