// Which ranks share a node, and which link joins the nodes over which network.
//
// Every rank puts what others must know about it on an address card, and all ranks exchange their
// cards over the side channel. After each exchange all ranks have the same, so they come to the
// same decision or throw the same error, and no rank waits for one that has failed:
//
// 1. who is where, and with which options;
// 2. the first rank of each node: which plug-ins work there, and which networks the node has;
// 3. what shows which of the ways to join the nodes works (trial.cpp).

#include "bootstrap/fabric.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/candidates.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/trial.hpp"
#include "bootstrap/wire.hpp"
#include "links/plugin.hpp"
#include "message/link.hpp"
#include "recorder/names.hpp"

namespace rondo::transport::bootstrap {
namespace {

// The facts that a rank tells all others about itself before there are any links.
struct AddressCard {
  int pid = 0;
  std::string host = {};
  std::string node_key = {};     // equal for ranks that share memory: machine and fake node
  std::string machine_key = {};  // of the machine alone
  std::string settings = {};     // must be equal on all ranks; for people to read

  static auto fields(auto& card) {
    return std::tie(card.pid, card.host, card.node_key, card.machine_key, card.settings);
  }
};

using Cards = std::vector<AddressCard>;

// "version 0.1.0, 4 ranks, fabric auto, ...". Compared as a text, and shown as one when it differs.
std::string describe_settings(int size, const WorldOptions& options) {
  const FabricOptions& fabric = options.fabric;
  std::string text = "version " RONDO_VERSION ", " + std::to_string(size) + " ranks, fabric " +
                     fabric.name + ", small_bytes " + std::to_string(options.small_bytes) +
                     ", waiting " + name_of(options.waiting);
  if (fabric.fake_nodes > 0) text += ", " + std::to_string(fabric.fake_nodes) + " fake nodes";
  if (!fabric.allreduce.empty()) text += ", allreduce " + fabric.allreduce;
  return text;
}

AddressCard card_of(const JobRank& self, const WorldOptions& options) {
  return {.pid = ::getpid(),
          .host = host_name(),
          .node_key = node_key(self.rank, self.size, options.fabric.fake_nodes),
          .machine_key = machine_key(),
          .settings = describe_settings(self.size, options)};
}

void check_settings(const Cards& cards) {
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if (cards[r].settings == cards[0].settings) continue;
    throw Error(Errc::bootstrap_failed,
                "bootstrap: ranks disagree: rank 0 on " + cards[0].host + " has " +
                    cards[0].settings + "; rank " + std::to_string(r) + " on " + cards[r].host +
                    " has " + cards[r].settings + "; all ranks must pass the same options");
  }
}

// Which node each rank is on: equal keys are one node, counted in order of the first rank.
std::vector<int> number_nodes(const Cards& cards) {
  std::map<std::string_view, int> numbers;
  std::vector<int> nodes;
  for (const AddressCard& card : cards) {
    const auto next = static_cast<int>(numbers.size());
    nodes.push_back(numbers.try_emplace(card.node_key, next).first->second);
  }
  return nodes;
}

std::vector<int> members_where(const Cards& cards, std::string AddressCard::* key,
                               const std::string& value) {
  std::vector<int> members;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].*key == value) members.push_back(static_cast<int>(r));
  }
  return members;
}

// The plug-ins that work on this host, by preference; empty when `wanted` does not need one.
std::string usable_plugins(const FabricName& wanted) {
  std::string usable;
  for (const std::string_view plugin : {"ucx", "ofi", "tcp"}) {
    if (wanted.plugin != "auto" && wanted.plugin != plugin) continue;
    if (problem_of_plugin(std::string(plugin)).empty()) usable += std::string(plugin) + " ";
  }
  return usable;
}

// Fake nodes can share memory, nodes cannot.
void check_one_machine(const Cards& cards) {
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if (cards[r].machine_key == cards[0].machine_key) continue;
    throw Error(Errc::bootstrap_failed,
                "fabric 'shm' joins the fake nodes of one machine, but rank " + std::to_string(r) +
                    " is on " + cards[r].host + " and rank 0 on " + cards[0].host +
                    "; choose tcp, ucx, ofi or auto");
  }
}

// The problem on this host; that of the rank which lacks the plug-in is not known here.
std::string problem_here(std::string_view name) {
  const std::string problem = problem_of_plugin(std::string(name));
  return problem.empty() ? "" : "; here: " + problem;
}

// Never another in silence than what was asked for.
void check_plugins(const std::string& name, const FabricName& wanted,
                   const std::vector<HostOffers>& nodes) {
  // TCP is a part of the library: whatever else is absent, there is a way.
  if (wanted.plugin == "auto") return;
  const HostOffers* without = first_without(nodes, wanted.plugin);
  if (without == nullptr) return;
  throw Error(Errc::link_unavailable, "fabric '" + name + "' was asked for, but rank " +
                                          std::to_string(without->rank) + " on " + without->host +
                                          " cannot load its plug-in" + problem_here(wanted.plugin) +
                                          "; install it there, or choose another fabric");
}

int own_node(const Membership& membership) {
  return membership.peers[static_cast<std::size_t>(membership.rank)].info.node;
}

// A link over shared memory to the ranks of this node, or to those of the other (fake) nodes: two
// links must not share a peer.
std::unique_ptr<Link> open_by_memory(const Membership& membership, bool this_node,
                                     const WorldOptions& options) {
  const int node = own_node(membership);
  std::vector<shm::RankMemory*> memories;
  for (std::size_t r = 0; r < membership.peers.size(); ++r) {
    const Peer& peer = membership.peers[r];
    const bool wanted =
        r == static_cast<std::size_t>(membership.rank) || (peer.info.node == node) == this_node;
    memories.push_back(wanted ? peer.memory.get() : nullptr);
  }
  return open_shm_link(membership.rank, std::move(memories), options.waiting != Waiting::spin);
}

// As it will be with the delays of `options`, if there are any.
std::string route_of(const Link& link, const FabricOptions& options) {
  if (!options.injects_delays()) return link.route();
  return route_with_delays(link.route(), options.injected_latency,
                           options.injected_bytes_per_second);
}

// The first rank of each node tells what the node offers; the other ranks say nothing.
std::vector<HostOffers> exchange_offers(SideChannel& channel, const JobRank& self,
                                        const WorldOptions& options, const Cards& cards,
                                        const std::vector<int>& nodes) {
  const FabricName wanted = parse_fabric(options.fabric.name);
  const auto rank = static_cast<std::size_t>(self.rank);
  const bool several_machines = std::ranges::any_of(
      cards, [&](const AddressCard& card) { return card.machine_key != cards[0].machine_key; });
  HostOffers mine;
  if (std::ranges::find(nodes, nodes[rank]) - nodes.begin() == self.rank) {
    mine = {.rank = self.rank,
            .host = cards[rank].host,
            .machine = cards[rank].machine_key,
            .plugins = usable_plugins(wanted),
            .store_interface = self.interface};
    // One machine needs no other networks, unless RDMA was asked for.
    if (several_machines || !wanted.provider.empty()) {
      mine.offers = list_offers(list_interfaces(), options.fabric.interface);
    }
  }
  std::vector<HostOffers> of_nodes;
  for (HostOffers& offers : exchange(channel, mine)) {
    if (!offers.machine.empty()) of_nodes.push_back(std::move(offers));
  }
  check_plugins(options.fabric.name, wanted, of_nodes);
  return of_nodes;
}

Membership membership_of(int rank, NodePeers node) {
  Membership membership{
      .rank = rank, .peers = std::move(node.peers), .oversubscribed = outnumber_cpus(node.cpus)};
  return membership;
}

}  // namespace

Membership join_nodes(const JobRank& self, const WorldOptions& options,
                      std::unique_ptr<SideChannel> channel,
                      const std::function<NodePeers(const std::vector<int>&)>& connect_members) {
  AddressCard mine = card_of(self, options);
  Cards cards = exchange(*channel, mine);
  check_settings(cards);
  const std::vector<int> nodes = number_nodes(cards);
  const bool several = std::ranges::max(nodes) > 0;

  // Fake nodes that are joined by shared memory see each other's.
  const bool by_memory = several && parse_fabric(options.fabric.name).plugin == "shm";
  const auto key = by_memory ? &AddressCard::machine_key : &AddressCard::node_key;
  Membership membership =
      membership_of(self.rank, connect_members(members_where(cards, key, mine.*key)));
  for (std::size_t r = 0; r < cards.size(); ++r) {
    membership.peers[r].info = {.pid = cards[r].pid, .host = cards[r].host, .node = nodes[r]};
  }
  membership.local = open_by_memory(membership, true, options);
  if (!several) return membership;

  if (by_memory) {
    check_one_machine(cards);
    membership.fabric = open_by_memory(membership, false, options);
    membership.route = "as asked";
  } else {
    // A link may have a connection to every rank of other nodes, though most algorithms need few.
    const auto here = std::ranges::count(nodes, own_node(membership));
    allow_more_descriptors(cards.size() - static_cast<std::size_t>(here));
    const auto offers = exchange_offers(*channel, self, options, cards, nodes);
    ChosenLink chosen = choose_link(*channel, self, options.fabric, membership, offers);
    membership.fabric = std::move(chosen.link);
    membership.route = std::move(chosen.reason);
  }
  membership.route = route_of(*membership.fabric, options.fabric) + ", " + membership.route;
  membership.side_channel = std::move(channel);
  return membership;
}

Membership join_one_node(int rank, NodePeers node, const WorldOptions& options) {
  Membership membership = membership_of(rank, std::move(node));
  membership.local = open_by_memory(membership, true, options);
  return membership;
}

}  // namespace rondo::transport::bootstrap
