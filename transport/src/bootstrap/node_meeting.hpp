#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/local_meeting.hpp"
#include "bootstrap/side_channel.hpp"
#include "core/world_core.hpp"

namespace rondo::transport::rendezvous {

/// Who and where a rank is, before it has met anybody.
struct Arrival {
  int rank = 0;
  int size = 1;
  /// By which links should reach other hosts; "lo" when all ranks are on this one.
  std::string interface = "lo";
};

/// Joins a World that may be on several nodes.
///
/// 1. All ranks exchange cards over `line`, and find out who shares a node with whom.
/// 2. `meet_locally` maps the memory of the ranks of this node.
/// 3. When there are several nodes, a fabric that works on all ranks is opened, and its addresses
///    are exchanged.
///
/// Collective. Throws Error(rendezvous_failed) or Error(link_unavailable).
[[nodiscard]] Membership meet_nodes(
    const Arrival& arrival, const WorldOptions& options, std::unique_ptr<SideChannel> line,
    const std::function<Meeting(const std::vector<int>& members)>& meet_locally);

/// The Membership of a rank whose World is one node.
[[nodiscard]] Membership on_one_node(int rank, Meeting meeting, const WorldOptions& options);

}  // namespace rondo::transport::rendezvous
