#include "bootstrap/node_meeting.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/card.hpp"
#include "bootstrap/cpus.hpp"
#include "bootstrap/fabric.hpp"
#include "links/plugin.hpp"
#include "links/shm/link.hpp"

namespace rondo::transport::rendezvous {
namespace {

std::vector<AddressCard> exchange(SideChannel& line, const AddressCard& mine) {
  std::vector<AddressCard> cards;
  for (const std::string& text : line.allgather(to_text(mine))) cards.push_back(card_from(text));
  return cards;
}

AddressCard card_of(const Arrival& arrival, const WorldOptions& options) {
  AddressCard card{.pid = ::getpid(),
                   .host = host_name(),
                   .machine_key = machine_key(),
                   .settings = describe_settings(arrival.size, options)};
  card.node_key = card.machine_key;
  const int fake_nodes = std::min(options.fabric.fake_nodes, arrival.size);
  if (fake_nodes > 0) {
    // Contiguous ranks, as evenly as they go.
    card.node_key +=
        "/" + std::to_string(static_cast<long>(arrival.rank) * fake_nodes / arrival.size);
  }
  return card;
}

std::vector<int> members_where(const std::vector<AddressCard>& cards,
                               std::string AddressCard::* key, const std::string& value) {
  std::vector<int> members;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].*key == value) members.push_back(static_cast<int>(r));
  }
  return members;
}

// A link over shared memory to the ranks of this node, or to those of the other (fake) nodes: two
// links must not share a peer.
std::unique_ptr<Link> open_by_memory(const Membership& membership, bool this_node,
                                     const WorldOptions& options) {
  const int node = membership.peers[static_cast<std::size_t>(membership.rank)].info.node;
  std::vector<shm::RankMemory*> memories;
  for (std::size_t r = 0; r < membership.peers.size(); ++r) {
    const Peer& peer = membership.peers[r];
    const bool wanted =
        r == static_cast<std::size_t>(membership.rank) || (peer.info.node == node) == this_node;
    memories.push_back(wanted ? peer.memory.get() : nullptr);
  }
  return open_shm_link(membership.rank, std::move(memories), options.waiting != Waiting::spin);
}

void open_fabric(Membership& membership, const Arrival& arrival, const WorldOptions& options,
                 const std::vector<AddressCard>& cards, const FabricChoice& choice) {
  std::unique_ptr<Link> link;
  if (choice.plugin == "shm") {
    link = open_by_memory(membership, false, options);
  } else {
    link = open_plugin(choice.plugin, {.rank = arrival.rank,
                                       .size = arrival.size,
                                       .provider = choice.provider,
                                       .device = arrival.interface,
                                       .peers = static_cast<int>(cards.size()) - 1});
  }
  membership.fabric = with_injected_delays(std::move(link), options.fabric);
}

Membership membership_of(int rank, Meeting meeting) {
  Membership membership{.rank = rank,
                        .peers = std::move(meeting.peers),
                        .oversubscribed = outnumber_cpus(meeting.cpus)};
  return membership;
}

void connect_fabric(Membership& membership, const std::vector<AddressCard>& addresses) {
  const int my_node = membership.peers[static_cast<std::size_t>(membership.rank)].info.node;
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    if (membership.peers[r].info.node == my_node) continue;
    membership.fabric->connect(static_cast<int>(r), addresses[r].address);
  }
}

}  // namespace

Membership meet_nodes(const Arrival& arrival, const WorldOptions& options,
                      std::unique_ptr<SideChannel> line,
                      const std::function<Meeting(const std::vector<int>&)>& meet_locally) {
  AddressCard mine = card_of(arrival, options);
  std::vector<AddressCard> cards = exchange(*line, mine);
  check_settings(cards);
  const std::vector<int> nodes = number_nodes(cards);
  const bool several = std::ranges::max(nodes) > 0;

  // Fake nodes that are joined by shared memory see each other's.
  const bool by_memory = several && parse_fabric(options.fabric.name).plugin == "shm";
  Meeting meeting =
      meet_locally(by_memory ? members_where(cards, &AddressCard::machine_key, mine.machine_key)
                             : members_where(cards, &AddressCard::node_key, mine.node_key));
  Membership membership = membership_of(arrival.rank, std::move(meeting));
  for (std::size_t r = 0; r < cards.size(); ++r) {
    membership.peers[r].info = {.pid = cards[r].pid, .host = cards[r].host, .node = nodes[r]};
  }
  membership.local = open_by_memory(membership, true, options);
  if (!several) return membership;

  mine.plugins = usable_plugins(options.fabric.name);
  cards = exchange(*line, mine);
  const FabricChoice choice = choose_fabric(options.fabric, cards);
  try {
    open_fabric(membership, arrival, options, cards, choice);
    mine.address = membership.fabric->address();
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  cards = exchange(*line, mine);
  check_links(cards);
  connect_fabric(membership, cards);
  membership.route = membership.fabric->route() + ", " + choice.reason;
  membership.side_channel = std::move(line);
  return membership;
}

Membership on_one_node(int rank, Meeting meeting, const WorldOptions& options) {
  Membership membership = membership_of(rank, std::move(meeting));
  membership.local = open_by_memory(membership, true, options);
  return membership;
}

}  // namespace rondo::transport::rendezvous
