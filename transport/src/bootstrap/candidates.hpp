#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bootstrap/interfaces.hpp"

// Which networks a host has, and by which of them, in which order, the nodes of a job may be
// joined.

namespace rondo::transport::bootstrap {

/// A network of this host, and how it is reached.
struct Offer {
  std::string kind = {};       ///< "tcp", "verbs", or a provider of libfabric as "cxi"
  std::string device = {};     ///< "eth0", "mlx5_0:1"
  std::string network = {};    ///< hosts with one kind and network may reach each other
  std::string address = {};    ///< of this host in it; no two hosts have the same
  std::uint32_t megabits = 0;  ///< per second; 0: unknown
  std::uint32_t place = 0;     ///< among what the user has named; the smallest is preferred
  std::string obstacle = {};   ///< why it is left out; empty when it is not

  static auto fields(auto& offer) {
    return std::tie(offer.kind, offer.device, offer.network, offer.address, offer.megabits,
                    offer.place, offer.obstacle);
  }
};

/// All networks of a host whose interfaces are `interfaces`, also those that are left out.
///
/// RDMA ports and the devices of high-speed networks are found below `root`, where /sys and /dev
/// are. `pattern`: see select_interfaces(); an RDMA port is asked for if its interface is.
[[nodiscard]] std::vector<Offer> list_offers(const std::vector<Interface>& interfaces,
                                             std::string_view pattern,
                                             const std::filesystem::path& root = "/");

/// The plug-in and provider that FabricOptions::name asks for.
struct FabricName {
  std::string plugin = {};    ///< "auto", "tcp", "ucx", "ofi", "shm"
  std::string provider = {};  ///< a UCX_TLS list, a provider of libfabric; empty: any
};

/// Throws std::invalid_argument when `name` is none.
[[nodiscard]] FabricName parse_fabric(const std::string& name);

/// The facts that a node tells all others about itself.
struct HostOffers {
  int rank = 0;  ///< the first of the node
  std::string host = {};
  std::string machine = {};          ///< equal for fake nodes of one machine
  std::string plugins = {};          ///< that work here: "ucx ofi tcp"
  std::string store_interface = {};  ///< by which the store was reached
  std::vector<Offer> offers = {};

  static auto fields(auto& host) {
    return std::tie(host.rank, host.host, host.machine, host.plugins, host.store_interface,
                    host.offers);
  }
};

/// The first node that has no plug-in of that name; null when all have it.
[[nodiscard]] const HostOffers* first_without(const std::vector<HostOffers>& nodes,
                                              std::string_view plugin);

/// A way to join all nodes that has to be tried.
struct Candidate {
  std::string kind = {};
  std::string plugin = {};
  std::string provider = {};
  std::string network = {};
  std::vector<std::string> devices = {};  ///< of each node; several rails with commas between
  std::uint32_t megabits = 0;             ///< of the slowest node; 0: unknown
  std::uint32_t place = 0;                ///< see Offer
  std::uint32_t turn = 0;                 ///< of several ports that are named in one network
  bool of_store = false;                  ///< the store was reached over it

  /// "tcp over eth1", as the first node sees it.
  [[nodiscard]] std::string label() const { return kind + " over " + devices.front(); }
  /// The device for the link of a rank, which is number `rank_on_node` of node `node`.
  [[nodiscard]] std::string device_of(std::size_t node, std::size_t rank_on_node) const;
  /// Neither comes before the other but for its speed.
  [[nodiscard]] bool is_beside(const Candidate& other) const noexcept {
    return kind == other.kind && plugin == other.plugin && place == other.place &&
           turn == other.turn;
  }

  using Ports = std::tuple<std::string, std::string, std::uint32_t>;
  /// Equal for those that are different libraries over the same ports of one network.
  [[nodiscard]] Ports ports() const { return {kind, network, turn}; }
};

/// One candidate whose messages are divided among all of these, which are of one kind and plug-in.
[[nodiscard]] Candidate join_rails(const std::vector<const Candidate*>& rails);

/// Is nothing left behind `ordered[index]` but other libraries over its ports, and what is `dead`?
[[nodiscard]] bool is_last_network(const std::vector<Candidate>& ordered, std::size_t index,
                                   const std::set<Candidate::Ports>& dead);

struct Candidates {
  std::vector<Candidate> ordered = {};     ///< the first is to be tried first
  std::vector<std::string> left_out = {};  ///< "tcp over eth2: h3 has no such network"
};

/// The ways that `wanted` allows and all nodes have. The result depends on nothing else, so all
/// ranks find the same.
///
/// 1. Native networks by libfabric (cxi, efa, opx, psm2, gni), then RDMA by UCX and by libfabric,
///    then TCP by sockets of Rondo's own, by UCX and by libfabric.
/// 2. Within one kind: those that the user has named first, each port by itself; the fastest; that
///    of the store.
/// 3. The interfaces by which the store was reached are always among them: they are known to reach
///    the other nodes, if only by routers.
///
/// On one machine fake nodes are joined over the interface of the store, unless a provider other
/// than TCP was asked for.
[[nodiscard]] Candidates find_candidates(const FabricName& wanted,
                                         const std::vector<HostOffers>& nodes);

}  // namespace rondo::transport::bootstrap
