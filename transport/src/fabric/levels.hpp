#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/channel.hpp"
#include "fabric/group.hpp"

namespace rondo::transport {

class CommunicatorCore;

/// The two levels of a group whose ranks are on several nodes: the members on this node, and for
/// each shard of the data its holders, one per node.
///
/// There are as many shards as the node with the fewest members has members; on every node, the
/// i-th member (in the order of the group) holds shard i.
struct Hierarchy {
  /// Two communicators of the members on this node: on the first go the operations that come
  /// before the exchange between nodes, on the second those after it, each in the same order on
  /// all of them.
  CommunicatorCore* down = nullptr;
  CommunicatorCore* up = nullptr;

  std::size_t shards = 0;

  /// The holders of this rank's shard, in the order of the nodes; nothing when it holds none.
  struct ShardOwners {
    std::unique_ptr<Channel> channel = {};
    Group group = {};
  };
  std::optional<ShardOwners> holders = {};

  /// Scratch: elements of each member on this node.
  std::vector<std::size_t> shares = {};
};

}  // namespace rondo::transport
