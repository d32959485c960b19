#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "collective/blocks.hpp"
#include "core/channel.hpp"

namespace rondo::transport {

class CommunicatorCore;

/// The two levels of a group whose ranks are on several nodes: the members on this node, and for
/// each shard of the data its owners, one per node.
///
/// There are as many shards as the node with the fewest members has members; on every node, the
/// i-th member (in the order of the group) owns shard i.
struct Hierarchy {
  /// Two communicators of the members on this node: on the first go the operations that come
  /// before the exchange between nodes, on the second those after it, each in the same order on
  /// all of them.
  CommunicatorCore* node_scatter = nullptr;
  CommunicatorCore* node_gather = nullptr;

  std::size_t shards = 0;
  /// Has some node several members?
  bool shares_nodes = false;

  /// The owners of this rank's shard, in the order of the nodes; nothing when it owns none.
  struct ShardOwners {
    std::unique_ptr<Channel> channel = {};
    Group group = {};
  };
  std::optional<ShardOwners> owners = {};

  /// Scratch: elements of each member on this node.
  std::vector<std::size_t> shares = {};
};

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
    const Range part = slice(whole.size(), shards_, shard, cache_line_bytes);
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
