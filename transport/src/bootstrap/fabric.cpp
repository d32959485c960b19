// Which ranks share a node, which link joins the nodes, and over which network interface.
//
// A host has several interfaces, and some lead nowhere: bridges of containers, cables that are not
// plugged in. A pattern of names and networks selects among them; without one, the interface over
// which the store was reached is the best guess, because the connection proves that it works.
//
// Every rank puts what others must know about it on an address card, and all ranks exchange their
// cards over the side channel, three times at most: who is where and with which options; which
// plug-ins work there; the address of the fabric, or why there is none. After each exchange all
// ranks have the same cards, so they come to the same decision or throw the same error, and no
// rank waits for one that has failed.

#include "bootstrap/fabric.hpp"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <rondo/transport/error.hpp>

#include "bootstrap/environment.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/wire.hpp"
#include "core/names.hpp"
#include "links/link.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::bootstrap {
namespace {

// An address and how many of its leading bits count.
struct Network {
  std::array<std::uint8_t, 16> bytes = {};
  unsigned width = 0;  // 32 or 128
  unsigned prefix = 0;
};

std::optional<Network> parse_address(std::string_view text) {
  // A zone ("%eth0") says nothing that the interface does not.
  const std::string bare(text.substr(0, text.find('%')));
  Network network;
  if (::inet_pton(AF_INET, bare.c_str(), network.bytes.data()) == 1) {
    network.width = 32;
  } else if (::inet_pton(AF_INET6, bare.c_str(), network.bytes.data()) == 1) {
    network.width = 128;
  } else {
    return std::nullopt;
  }
  network.prefix = network.width;
  return network;
}

std::optional<Network> parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  std::optional<Network> network = parse_address(text.substr(0, slash));
  if (!network || slash == std::string_view::npos) return network;
  const std::string_view digits = text.substr(slash + 1);
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, network->prefix);
  if (error != std::errc{} || rest != end || network->prefix > network->width) return std::nullopt;
  return network;
}

// Do the leading bits agree?
bool contains(const Network& network, const Network& address) {
  if (network.width != address.width) return false;
  for (unsigned bit = 0; bit < network.prefix; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80U >> bit % 8);
    if (((network.bytes[bit / 8] ^ address.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

// The message lists all interfaces, so that a typing error is easy to correct.
[[noreturn]] void fail(const std::string& what, const std::vector<Interface>& all) {
  std::string existing;
  for (const Interface& interface : all) {
    existing += (existing.empty() ? "" : ", ") + interface.name + " (";
    if (!interface.up) existing += "down";
    for (std::size_t i = 0; i < interface.addresses.size(); ++i) {
      existing += (i == 0 && interface.up ? "" : ", ") + interface.addresses[i];
    }
    existing += ")";
  }
  throw Error(Errc::rendezvous_failed,
              what + "; this host has " + (existing.empty() ? "no interface" : existing));
}

// One part of a pattern: what stands between two commas. It is a network if it reads as one,
// otherwise a glob of names.
class Part {
 public:
  Part(std::string_view text, const std::vector<Interface>& all) {
    if (text.starts_with('^')) {
      excludes_ = true;
      text.remove_prefix(1);
    }
    text_ = text;
    network_ = parse_network(text);
    if (text.empty() || (!network_ && text.find('/') != std::string_view::npos)) {
      fail("interface: '" + text_ + "' is neither a name nor a network such as 10.0.0.0/8", all);
    }
  }

  [[nodiscard]] bool excludes() const { return excludes_; }
  [[nodiscard]] const std::string& text() const { return text_; }

  [[nodiscard]] bool matches(const Interface& interface) const {
    if (!network_) return ::fnmatch(text_.c_str(), interface.name.c_str(), 0) == 0;
    return std::ranges::any_of(interface.addresses, [&](const std::string& text) {
      const auto address = parse_address(text);
      return address && contains(*network_, *address);
    });
  }

 private:
  bool excludes_ = false;
  std::string text_;
  std::optional<Network> network_;
};

std::vector<Part> parse(std::string_view pattern, const std::vector<Interface>& all) {
  std::vector<Part> parts;
  while (!pattern.empty()) {
    const std::size_t comma = pattern.find(',');
    parts.emplace_back(pattern.substr(0, comma), all);
    if (comma == std::string_view::npos) break;
    pattern.remove_prefix(comma + 1);
    if (pattern.empty()) fail("interface: a name is missing after the last comma", all);
  }
  return parts;
}

// Fit to be chosen without being named: bridges and virtual devices of containers are up, too, but
// lead to no other host.
bool usual(const Interface& interface) {
  if (!interface.up || interface.loopback || interface.addresses.empty()) return false;
  constexpr std::array<std::string_view, 5> inner = {"docker", "veth", "br-", "virbr", "cni"};
  return std::ranges::none_of(
      inner, [&](std::string_view prefix) { return interface.name.starts_with(prefix); });
}

// Appends what matches `part` and is up, unless it was chosen before: the order of the pattern is
// that of preference. Returns whether something that matches is up.
bool append_matches(std::vector<Interface>& chosen, const Part& part,
                    const std::vector<Interface>& all) {
  bool matched = false;
  bool up = false;
  for (const Interface& interface : all) {
    if (!part.matches(interface)) continue;
    matched = true;
    up = up || interface.up;
    const bool chosen_already = std::ranges::any_of(
        chosen, [&](const Interface& other) { return other.name == interface.name; });
    if (interface.up && !chosen_already) chosen.push_back(interface);
  }
  if (!matched) fail("interface: nothing matches '" + part.text() + "'", all);
  return up;
}

// As bytes: one address can be written in several ways.
bool has(const Interface& interface, std::string_view address) {
  const auto wanted = parse_address(address);
  return wanted && std::ranges::any_of(interface.addresses, [&](const std::string& text) {
           const auto own = parse_address(text);
           return own && own->width == wanted->width && own->bytes == wanted->bytes;
         });
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    throw Error(Errc::rendezvous_failed, "interface: the kernel does not list them");
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<Interface> all;
  // The kernel lists an interface once for each of its addresses, and once without any.
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    const std::string_view name = entry->ifa_name;
    auto found_at = std::ranges::find(all, name, &Interface::name);
    if (found_at == all.end()) {
      constexpr unsigned working = IFF_UP | IFF_RUNNING;
      all.push_back({.name = std::string(name),
                     .up = (entry->ifa_flags & working) == working,
                     .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
      found_at = all.end() - 1;
    }
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found_at->addresses.push_back(Address(entry->ifa_addr, static_cast<socklen_t>(length)).host());
  }
  return all;
}

std::vector<Interface> select_interfaces(const std::vector<Interface>& all,
                                         std::string_view pattern) {
  const std::vector<Part> parts = parse(pattern, all);
  std::vector<Interface> chosen;
  const bool names_some = std::ranges::any_of(parts, [](const Part& p) { return !p.excludes(); });
  if (!names_some) std::ranges::copy_if(all, std::back_inserter(chosen), usual);
  // Exclusions come last, wherever they stand in the pattern.
  std::string down;
  for (const Part& part : parts) {
    if (!part.excludes() && !append_matches(chosen, part, all)) down = part.text();
  }
  if (chosen.empty() && !down.empty()) {
    fail("interface: what matches '" + down + "' is down", all);
  }
  std::erase_if(chosen, [&](const Interface& interface) {
    return std::ranges::any_of(
        parts, [&](const Part& part) { return part.excludes() && part.matches(interface); });
  });
  if (chosen.empty()) {
    fail("interface: '" + std::string(pattern) + "' leaves none to reach other hosts by", all);
  }
  return chosen;
}

std::string choose_interface(const std::vector<Interface>& all, std::string_view pattern,
                             std::string_view reached) {
  const auto proved = [&](const Interface& interface) { return has(interface, reached); };
  if (pattern.empty()) {
    const auto found = std::ranges::find_if(all, proved);
    if (found != all.end()) return found->name;
  }
  const std::vector<Interface> chosen = select_interfaces(all, pattern);
  const auto found = std::ranges::find_if(chosen, proved);
  return found != chosen.end() ? found->name : chosen.front().name;
}

namespace {

// What a rank tells all others about itself before there are any links.
struct AddressCard {
  int pid = 0;
  std::string host = {};
  std::string node_key = {};     // equal for ranks that share memory: machine and fake node
  std::string machine_key = {};  // of the machine alone
  std::string settings = {};     // must be equal on all ranks; for people to read
  std::string plugins = {};      // that work here, by preference: "ucx ofi"
  std::string address = {};      // of the fabric
  std::string problem = {};      // why there is no address

  static auto fields(auto& card) {
    return std::tie(card.pid, card.host, card.node_key, card.machine_key, card.settings,
                    card.plugins, card.address, card.problem);
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
  AddressCard card{.pid = ::getpid(),
                   .host = host_name(),
                   .machine_key = machine_key(),
                   .settings = describe_settings(self.size, options)};
  card.node_key = card.machine_key;
  const int fake_nodes = std::min(options.fabric.fake_nodes, self.size);
  if (fake_nodes > 0) {
    // Contiguous ranks, as evenly as they go.
    card.node_key += "/" + std::to_string(static_cast<long>(self.rank) * fake_nodes / self.size);
  }
  return card;
}

// One allgather: the cards of all ranks, in rank order.
Cards exchange(SideChannel& channel, const AddressCard& mine) {
  Cards cards;
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

// Ranks that opened the fabric throw as well: without the others it is useless.
void check_fabric(const Cards& cards) {
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].problem.empty()) continue;
    throw Error(Errc::link_unavailable,
                "rank " + std::to_string(r) + " on " + cards[r].host + ": " + cards[r].problem);
  }
}

// Which node each rank is on: equal keys are one node, counted in order of the first rank.
std::vector<int> number_nodes(const Cards& cards) {
  std::vector<std::string> keys;
  std::vector<int> nodes;
  for (const AddressCard& card : cards) {
    const auto found = std::ranges::find(keys, card.node_key);
    nodes.push_back(static_cast<int>(found - keys.begin()));
    if (found == keys.end()) keys.push_back(card.node_key);
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

// Which link joins the nodes of a job, the same on all ranks.
struct FabricChoice {
  std::string plugin;    // "ucx", "ofi", or "shm"
  std::string provider;  // what the user asked for, or empty
  std::string reason;    // why this one, for people
};

constexpr std::array<std::string_view, 3> preference = {"ucx", "ofi", "tcp"};

// What `name` ("auto", "ucx", "ucx:tcp", "ofi:verbs", "shm") asks for.
FabricChoice parse_fabric(const std::string& name) {
  const std::size_t colon = name.find(':');
  FabricChoice choice{.plugin = name.substr(0, colon),
                      .provider = colon == std::string::npos ? "" : name.substr(colon + 1),
                      .reason = "as asked"};
  const bool known = choice.plugin == "ucx" || choice.plugin == "ofi" || name == "tcp" ||
                     name == "shm" || name == "auto";
  if (!known || (colon != std::string::npos && choice.provider.empty())) {
    throw std::invalid_argument(
        "rondo::transport: fabric '" + name +
        "' is none of auto, tcp, ucx, ucx:TRANSPORTS, ofi, ofi:PROVIDER, shm");
  }
  return choice;
}

// The plug-ins that work on this host, by preference; empty when `name` does not need one.
std::string usable_plugins(const std::string& name) {
  const std::string wanted = parse_fabric(name).plugin;
  std::string usable;
  for (const std::string_view plugin : preference) {
    if (wanted != "auto" && wanted != plugin) continue;
    if (problem_of_plugin(std::string(plugin)).empty()) usable += std::string(plugin) + " ";
  }
  return usable;
}

// The first rank that lacks the plug-in, or -1.
int first_without(const Cards& cards, std::string_view plugin) {
  const std::string name = " " + std::string(plugin) + " ";
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if ((" " + cards[r].plugins + " ").find(name) == std::string::npos) return static_cast<int>(r);
  }
  return -1;
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

// What was asked for, or the first that all ranks have in common; never another in silence.
FabricChoice choose_fabric(const FabricOptions& options, const Cards& cards) {
  FabricChoice choice = parse_fabric(options.name);
  if (choice.plugin == "shm") {
    check_one_machine(cards);
    return choice;
  }
  if (choice.plugin != "auto") {
    const int without = first_without(cards, choice.plugin);
    if (without < 0) return choice;
    throw Error(Errc::link_unavailable,
                "fabric '" + options.name + "' was asked for, but rank " + std::to_string(without) +
                    " on " + cards[static_cast<std::size_t>(without)].host +
                    " cannot load its plug-in" + problem_here(choice.plugin) +
                    "; install it there, or choose another fabric");
  }
  for (const std::string_view name : preference) {
    if (first_without(cards, name) >= 0) continue;
    return {.plugin = std::string(name),
            .provider = {},
            .reason = "auto: the first of ucx, ofi that works on all ranks"};
  }
  throw Error(
      Errc::link_unavailable,
      "no link reaches the ranks of other nodes: no plug-in of ucx, ofi works on all ranks" +
          problem_here("ucx") + problem_here("ofi"));
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
std::unique_ptr<Link> open_fabric(const Membership& membership, const JobRank& self,
                                  const WorldOptions& options, const FabricChoice& choice) {
  std::unique_ptr<Link> link;
  if (choice.plugin == "shm") {
    link = open_by_memory(membership, false, options);
  } else {
    link = open_plugin(choice.plugin, {.rank = self.rank,
                                       .size = self.size,
                                       .provider = choice.provider,
                                       .device = self.interface,
                                       .peers = static_cast<int>(membership.peers.size()) - 1});
  }
  const FabricOptions& fabric = options.fabric;
  if (fabric.injected_latency.count() <= 0 && fabric.injected_bytes_per_second <= 0) return link;
  return open_delayed_link(std::move(link), fabric.injected_latency,
                           fabric.injected_bytes_per_second);
}

// Addresses alone: connections are made when they are first used.
void connect_fabric(Membership& membership, const Cards& cards) {
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (membership.peers[r].info.node == own_node(membership)) continue;
    membership.fabric->connect(static_cast<int>(r), cards[r].address);
  }
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

  mine.plugins = usable_plugins(options.fabric.name);
  cards = exchange(*channel, mine);
  const FabricChoice choice = choose_fabric(options.fabric, cards);
  // A rank that cannot open it must take part in the next exchange, or the others would wait for
  // it.
  try {
    membership.fabric = open_fabric(membership, self, options, choice);
    mine.address = membership.fabric->address();
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  cards = exchange(*channel, mine);
  check_fabric(cards);
  connect_fabric(membership, cards);
  membership.route = membership.fabric->route() + ", " + choice.reason;
  membership.side_channel = std::move(channel);
  return membership;
}

Membership join_one_node(int rank, NodePeers node, const WorldOptions& options) {
  Membership membership = membership_of(rank, std::move(node));
  membership.local = open_by_memory(membership, true, options);
  return membership;
}

}  // namespace rondo::transport::bootstrap
