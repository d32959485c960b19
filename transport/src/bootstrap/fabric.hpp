#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/node_connector.hpp"
#include "bootstrap/side_channel.hpp"

namespace rondo::transport::bootstrap {

/// A network interface of this host.
struct Interface {
  std::string name = {};
  bool up = false;  ///< switched on, and its line works
  bool loopback = false;
  std::vector<std::string> addresses = {};  ///< IPv4 and IPv6, without prefix length
};

/// Those of this network namespace, as the kernel has them.
[[nodiscard]] std::vector<Interface> list_interfaces();

/// The interfaces of `all` that `pattern` asks for.
///
/// - "ib0,eth*": names and globs, the first named first.
/// - "10.0.0.0/8,fd00::/16,192.168.0.7": those that have an address in there.
/// - "^docker0,^10.0.0.0/8": all but these; an exclusion that matches nothing has no effect.
/// - "" and exclusions alone choose among those that are up and neither loopback nor made for
///   containers and virtual machines (docker*, veth*, br-*, virbr*, cni*). What is named is taken
///   even if it is one of these.
///
/// What is down is passed over. Throws Error(rendezvous_failed) that lists what exists when a part
/// of the pattern matches nothing, when it is no pattern, and when nothing is left.
[[nodiscard]] std::vector<Interface> select_interfaces(const std::vector<Interface>& all,
                                                       std::string_view pattern);

/// The name of the one interface for links to other hosts.
///
/// That with the address `reached`, by which the store was reached, if the pattern allows it: the
/// connection proves that it works, while another one may be up and yet lead nowhere. An empty
/// pattern allows it whatever its name is, and loopback, too, when all ranks are on this host.
/// Otherwise the first that the pattern selects.
[[nodiscard]] std::string choose_interface(const std::vector<Interface>& all,
                                           std::string_view pattern, std::string_view reached);

/// A rank that joins a World.
struct JobRank {
  int rank = 0;
  int size = 1;
  /// By which links should reach other hosts; "lo" when all ranks are on this one.
  std::string interface = "lo";
};

/// Joins a World that may be on several nodes.
///
/// 1. All ranks exchange address cards over `channel`, and find out who shares a node with whom.
/// 2. `connect_members` maps the memory of the ranks of this node.
/// 3. When there are several nodes, a fabric that works on all ranks is opened, and its addresses
///    are exchanged.
///
/// Collective. Throws Error(rendezvous_failed) or Error(link_unavailable).
[[nodiscard]] Membership join_nodes(
    const JobRank& self, const WorldOptions& options, std::unique_ptr<SideChannel> channel,
    const std::function<NodePeers(const std::vector<int>& members)>& connect_members);

/// The Membership of a rank whose World is one node.
[[nodiscard]] Membership join_one_node(int rank, NodePeers node, const WorldOptions& options);

}  // namespace rondo::transport::bootstrap
