#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/node_connector.hpp"
#include "bootstrap/side_channel.hpp"

namespace rondo::transport::bootstrap {

/// A rank that joins a World.
struct JobRank {
  int rank = 0;
  int size = 1;
  /// By which the store was reached; "lo" when all ranks are on this host.
  std::string interface = "lo";
};

/// Joins a World that may be on several nodes.
///
/// 1. All ranks exchange address cards over `channel`, and find out who shares a node with whom.
/// 2. `connect_members` maps the memory of the ranks of this node.
/// 3. When there are several nodes, the ways to join them are tried by all ranks together, the best
///    first, until one carries messages. Membership::route says which, and why not the others.
///
/// Collective. Throws Error(bootstrap_failed) or Error(link_unavailable).
[[nodiscard]] Membership join_nodes(
    const JobRank& self, const WorldOptions& options, std::unique_ptr<SideChannel> channel,
    const std::function<NodePeers(const std::vector<int>& members)>& connect_members);

/// The Membership of a rank whose World is one node.
[[nodiscard]] Membership join_one_node(int rank, NodePeers node, const WorldOptions& options);

}  // namespace rondo::transport::bootstrap
