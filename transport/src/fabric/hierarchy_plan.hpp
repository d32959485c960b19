#pragma once

#include <algorithm>
#include <cstddef>

#include "node/slices.hpp"

namespace rondo::transport {

/// How a hierarchical allreduce cuts its data: into blocks, and each block into one shard per
/// exchange between nodes. The same on all ranks.
class HierarchyPlan {
 public:
  HierarchyPlan() = default;
  constexpr HierarchyPlan(std::size_t bytes, std::size_t shards) noexcept
      : bytes_(bytes), shards_(shards), block_bytes_(shards * shard_bytes) {}

  [[nodiscard]] constexpr std::size_t shards() const noexcept { return shards_; }
  [[nodiscard]] constexpr std::size_t blocks() const noexcept {
    return (bytes_ + block_bytes_ - 1) / block_bytes_;
  }
  [[nodiscard]] constexpr Range block(std::size_t index) const noexcept {
    const std::size_t begin = index * block_bytes_;
    return {begin, std::min(bytes_, begin + block_bytes_)};
  }
  /// Bytes of block `index` that are in shard `shard`; none beyond the last shard.
  [[nodiscard]] constexpr Range shard(std::size_t index, std::size_t shard) const noexcept {
    const Range whole = block(index);
    if (shard >= shards_) return {whole.end, whole.end};
    const Range part = slice(whole.size(), shards_, shard, 64);
    return {whole.begin + part.begin, whole.begin + part.end};
  }

 private:
  // Long enough that filling and draining its ring costs little, and short enough that what one
  // block does on a node hides behind what another does between nodes.
  static constexpr std::size_t shard_bytes = std::size_t{4} << 20U;

  std::size_t bytes_ = 0;
  std::size_t shards_ = 1;
  std::size_t block_bytes_ = shard_bytes;
};

}  // namespace rondo::transport
