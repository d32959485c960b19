// Which ranks share a node, and which link joins the nodes over which network.
//
// Every rank puts what others must know about it on an address card, and all ranks exchange their
// cards over the side channel. After each exchange all ranks have the same, so they come to the
// same decision or throw the same error, and no rank waits for one that has failed:
//
// 1. who is where, and with which options;
// 2. the first rank of each node: which plug-ins work there, and which networks the node has;
// 3. for each way to join the nodes (candidates.cpp), until one works: the addresses of its link,
//    or why it cannot be opened; and whether it carries messages (probe.cpp).
//
// The interface by which the store was reached decides nothing but ties: often it is that of a
// slow network.

#include "bootstrap/fabric.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/candidates.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/probe.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/wire.hpp"
#include "core/names.hpp"
#include "fabric/schedules.hpp"
#include "links/link.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::bootstrap {
namespace {

// What a rank tells all others about itself before there are any links.
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

// A rank's link over one of the ways to join the nodes.
struct LinkAddress {
  std::string address = {};
  std::string problem = {};  // why there is no address

  static auto fields(auto& self) { return std::tie(self.address, self.problem); }
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

// One allgather: what all ranks have sent, in rank order.
template <typename Card>
std::vector<Card> exchange(SideChannel& channel, const Card& mine) {
  std::vector<Card> cards;
  for (const std::string& bytes : channel.allgather(pack(mine))) {
    if (unpack(bytes, cards.emplace_back())) continue;
    throw Error(Errc::rendezvous_failed,
                "rendezvous: a rank sent something else than its address card; do all ranks run "
                "the same version?");
  }
  return cards;
}

void check_settings(const Cards& cards) {
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if (cards[r].settings == cards[0].settings) continue;
    throw Error(Errc::rendezvous_failed,
                "rendezvous: ranks disagree: rank 0 on " + cards[0].host + " has " +
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
    throw Error(Errc::rendezvous_failed,
                "fabric 'shm' joins the fake nodes of one machine, but rank " + std::to_string(r) +
                    " is on " + cards[r].host + " and rank 0 on " + cards[0].host +
                    "; choose tcp, ucx, ofi or auto");
  }
}

// Of this host; that of the rank which lacks the plug-in is not known here.
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

// With the delays of `options`, if there are any.
std::unique_ptr<Link> with_delays(std::unique_ptr<Link> link, const FabricOptions& fabric) {
  if (fabric.injected_latency.count() <= 0 && fabric.injected_bytes_per_second <= 0) return link;
  return open_delayed_link(std::move(link), fabric.injected_latency,
                           fabric.injected_bytes_per_second);
}

// What the first rank of each node tells of it; the other ranks say nothing.
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

/// The ways to join the nodes, tried one after the other by all ranks together until one works.
class Trial {
 public:
  Trial(SideChannel& channel, const JobRank& self, const FabricOptions& options,
        const Membership& membership, const std::vector<HostOffers>& nodes)
      : channel_(&channel),
        self_(&self),
        options_(&options),
        membership_(&membership),
        nodes_(&nodes),
        candidates_(find_candidates(parse_fabric(options.name), nodes)) {
    for (const Peer& peer : membership.peers) node_of_rank_.push_back(peer.info.node);
    left_out_ = std::move(candidates_.left_out);
  }

  /// Throws Error(link_unavailable) when none works.
  [[nodiscard]] std::unique_ptr<Link> run() {
    const auto& all = candidates_.ordered;
    for (std::size_t first = 0; first < all.size();) {
      const std::size_t last = end_of_group(first);
      std::unique_ptr<Link> link = last - first > 1 ? fastest(first, last) : only(first);
      if (link != nullptr) return link;
      first = last;
    }
    fail();
  }

  /// Why the link that run() has returned, and what was left out; for people.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  struct Tried {
    std::unique_ptr<Link> link = {};
    std::uint64_t nanoseconds = 0;
    std::string problem = {};
  };

  // Those from `first` on that are equal but for their speed, if that must be measured; those that
  // are equally fast, which are tried together, too; else one.
  [[nodiscard]] std::size_t end_of_group(std::size_t first) const {
    const auto& all = candidates_.ordered;
    std::size_t last = first + 1;
    std::size_t equal = 1;
    bool unknown = all[first].megabits == 0;
    for (; last < all.size() && all[last].is_beside(all[first]); ++last) {
      unknown = unknown || all[last].megabits == 0;
      if (all[last].megabits == all[first].megabits) equal += 1;
    }
    return unknown ? last : first + equal;
  }

  std::unique_ptr<Link> only(std::size_t index) {
    const Candidate& candidate = candidates_.ordered[index];
    // Where nothing arrives, another library cannot do better.
    if (dead_.contains({candidate.kind, candidate.network})) return nullptr;
    Tried tried = attempt(candidate, false, index + 1 == candidates_.ordered.size());
    if (tried.link == nullptr) return nullptr;
    choose(candidate, reason_for(index));
    return std::move(tried.link);
  }

  // The first stays unless another is twice as fast: measured times are never quite the same.
  std::unique_ptr<Link> fastest(std::size_t first, std::size_t last) {
    std::vector<Tried> tried;
    std::size_t best = last;
    for (std::size_t i = first; i < last; ++i) {
      const Candidate& candidate = candidates_.ordered[i];
      const bool is_dead = dead_.contains({candidate.kind, candidate.network});
      tried.push_back(is_dead ? Tried{} : attempt(candidate, true, false));
      if (tried.back().link == nullptr) continue;
      const auto time = [&](std::size_t index) { return tried[index - first].nanoseconds; };
      if (best == last || time(best) > 2 * time(i)) best = i;
    }
    if (best == last) return nullptr;
    Tried& chosen = tried[best - first];
    if (auto link = together(first, best, tried)) return link;
    for (std::size_t i = first; i < last; ++i) {
      if (i == best || tried[i - first].link == nullptr) continue;
      left_out_.push_back(candidates_.ordered[i].label() + ": measured " +
                          speed_text(tried[i - first].nanoseconds));
    }
    choose(candidates_.ordered[best], "measured " + speed_text(chosen.nanoseconds) +
                                          ", and no other that joins all nodes is twice as fast");
    return std::move(chosen.link);
  }

  // All that are about as fast as the best, as rails of one link. Null unless that is clearly
  // faster: where the processors limit both, or the wires are one, rails only cost calls.
  std::unique_ptr<Link> together(std::size_t first, std::size_t best,
                                 const std::vector<Tried>& tried) {
    const Candidate& alone = candidates_.ordered[best];
    if (alone.plugin == "ofi") return nullptr;
    const std::uint64_t time = tried[best - first].nanoseconds;
    std::vector<const Candidate*> rails{&alone};
    for (std::size_t i = 0; i < tried.size(); ++i) {
      const bool is_as_fast = tried[i].link != nullptr && 4 * tried[i].nanoseconds <= 5 * time;
      if (first + i != best && is_as_fast) rails.push_back(&candidates_.ordered[first + i]);
    }
    if (rails.size() == 1) return nullptr;
    const Candidate joined = join_rails(rails);
    Tried all = attempt(joined, true, false);
    if (all.link == nullptr) return nullptr;
    if (3 * all.nanoseconds > 2 * time) {
      left_out_.push_back(joined.label() + " together: measured " + speed_text(all.nanoseconds));
      return nullptr;
    }
    choose(joined, "measured " + speed_text(all.nanoseconds) + ", over " + alone.label() +
                       " alone " + speed_text(time));
    return std::move(all.link);
  }

  // Collective. A rank that cannot open its link takes part in the exchanges all the same, or the
  // others would wait for it.
  Tried attempt(const Candidate& candidate, bool measures, bool is_last) {
    Tried tried;
    LinkAddress mine;
    try {
      tried.link = open(candidate);
      mine.address = tried.link->address();
    } catch (const Error& error) {
      mine.problem = error.what();
    }
    const auto addresses = exchange(*channel_, mine);
    tried.problem = first_problem(addresses);
    if (tried.problem.empty()) {
      const ProbeResult mine_probed = connect_and_probe(*tried.link, addresses, measures, is_last);
      const auto probed = exchange_while_moving(*tried.link, mine_probed);
      tried.problem = first_problem(probed);
      tried.nanoseconds = std::ranges::max(probed, {}, &ProbeResult::nanoseconds).nanoseconds;
      if (std::ranges::any_of(probed, &ProbeResult::silent)) {
        dead_.emplace(candidate.kind, candidate.network);
      }
    }
    if (tried.problem.empty()) return tried;
    tried.link.reset();
    problems_.push_back(tried.problem);
    left_out_.push_back(candidate.label() + ": " + tried.problem);
    return tried;
  }

  [[nodiscard]] std::unique_ptr<Link> open(const Candidate& candidate) const {
    const auto node = static_cast<std::size_t>(own_node(*membership_));
    return open_plugin(candidate.plugin, {.rank = self_->rank,
                                          .size = self_->size,
                                          .provider = candidate.provider,
                                          .device = candidate.device_of(node, place_on_node()),
                                          .peers = likely_peers()});
  }

  // Of this rank among those of its node.
  [[nodiscard]] std::size_t place_on_node() const {
    const auto here = node_of_rank_.begin() + self_->rank;
    return static_cast<std::size_t>(std::count(node_of_rank_.begin(), here, *here));
  }

  // The algorithms talk to a few of the ranks on other nodes.
  [[nodiscard]] int likely_peers() const {
    const auto far = std::ranges::count_if(node_of_rank_, [&](int node) {
      return node != node_of_rank_[static_cast<std::size_t>(self_->rank)];
    });
    const auto partners = schedule::most_partners(node_of_rank_.size());
    return static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(far), partners));
  }

  ProbeResult connect_and_probe(Link& link, const std::vector<LinkAddress>& addresses,
                                bool measures, bool is_last) const {
    try {
      for (std::size_t r = 0; r < addresses.size(); ++r) {
        if (node_of_rank_[r] == own_node(*membership_)) continue;
        link.connect(static_cast<int>(r), addresses[r].address);
      }
    } catch (const Error& error) {
      return {.problem = error.what()};
    }
    // Without another way a host that is merely slow gets more time.
    const std::chrono::seconds limit = is_last ? last_limit : probe_limit;
    ProbeResult result = probe(link, neighbours_of(self_->rank, node_of_rank_), measures, limit);
    if (!result.problem.empty()) result.problem = link.route() + " " + result.problem;
    return result;
  }

  // The last answers may still be in the link: it is moved on until all ranks have what they need.
  std::vector<ProbeResult> exchange_while_moving(Link& link, const ProbeResult& mine) {
    auto exchanged = std::async(std::launch::async, [&] { return exchange(*channel_, mine); });
    constexpr std::chrono::microseconds pause{200};
    while (exchanged.wait_for(pause) != std::future_status::ready) (void)link.progress();
    return exchanged.get();
  }

  // "rank 3 on h2: ..."; empty when there is none.
  template <typename Card>
  [[nodiscard]] std::string first_problem(const std::vector<Card>& cards) const {
    const auto found =
        std::ranges::find_if(cards, [](const Card& card) { return !card.problem.empty(); });
    if (found == cards.end()) return {};
    const auto rank = static_cast<std::size_t>(found - cards.begin());
    return "rank " + std::to_string(rank) + " on " + membership_->peers[rank].info.host + ": " +
           found->problem;
  }

  [[nodiscard]] static std::string speed_text(std::uint64_t nanoseconds) {
    std::array<char, 32> text{};
    const double megabytes = static_cast<double>(probe_bytes) * 1e3;
    std::snprintf(text.data(), text.size(), "%.3g MB/s",
                  megabytes / static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1)));
    return text.data();
  }

  // Why a candidate comes before those behind it.
  [[nodiscard]] std::string reason_for(std::size_t index) const {
    const auto& all = candidates_.ordered;
    const Candidate& candidate = all[index];
    if (candidate.kind != "tcp") return "the first high-speed network that joins all nodes";
    if (all.size() == 1) return "the only network that joins all nodes";
    if (names_interfaces(options_->interface)) return "the first of those that were named";
    const bool is_faster = index + 1 < all.size() && all[index + 1].is_beside(candidate) &&
                           all[index + 1].megabits < candidate.megabits;
    if (is_faster) {
      return "the fastest network that joins all nodes, " + std::to_string(candidate.megabits) +
             " Mbit/s";
    }
    return candidate.of_store ? "the network by which the store was reached"
                              : "the first network that joins all nodes";
  }

  void choose(const Candidate& candidate, const std::string& why) {
    reason_ = (options_->name == "auto" ? "auto: " : "as asked: ") + why;
    const auto differs = [&](const std::string& device) {
      return device != candidate.devices.front();
    };
    if (std::ranges::any_of(candidate.devices, differs)) {
      reason_ += "; on " + (*nodes_)[0].host + " over " + candidate.devices[0];
      constexpr std::size_t shown = 8;
      for (std::size_t i = 1; i < std::min(shown, nodes_->size()); ++i) {
        reason_ += ", on " + (*nodes_)[i].host + " over " + candidate.devices[i];
      }
      if (nodes_->size() > shown) reason_ += ", ...";
    }
    for (const std::string& one : left_out_) reason_ += "; left out: " + one;
  }

  [[noreturn]] void fail() const {
    std::string text;
    for (const std::string& problem : problems_) text += (text.empty() ? "" : "; ") + problem;
    if (problems_.empty()) {
      text = "fabric '" + options_->name + "' finds no network that joins all nodes";
      for (const std::string& one : left_out_) text += "; left out: " + one;
    }
    throw Error(Errc::link_unavailable, text);
  }

  static constexpr std::chrono::seconds probe_limit{3};
  static constexpr std::chrono::seconds last_limit{20};

  SideChannel* channel_;
  const JobRank* self_;
  const FabricOptions* options_;
  const Membership* membership_;
  const std::vector<HostOffers>* nodes_;
  std::vector<int> node_of_rank_ = {};
  Candidates candidates_;
  std::set<std::pair<std::string, std::string>> dead_ = {};  // kinds and networks
  std::vector<std::string> left_out_ = {};
  std::vector<std::string> problems_ = {};
  std::string reason_ = {};
};

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
    Trial trial(*channel, self, options.fabric, membership, offers);
    membership.fabric = trial.run();
    membership.route = trial.reason();
  }
  membership.fabric = with_delays(std::move(membership.fabric), options.fabric);
  membership.route = membership.fabric->route() + ", " + membership.route;
  membership.side_channel = std::move(channel);
  return membership;
}

Membership join_one_node(int rank, NodePeers node, const WorldOptions& options) {
  Membership membership = membership_of(rank, std::move(node));
  membership.local = open_by_memory(membership, true, options);
  return membership;
}

}  // namespace rondo::transport::bootstrap
