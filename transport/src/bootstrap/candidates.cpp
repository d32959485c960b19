// Which networks a host has, and which of them join all nodes of a job.
//
// The interface by which the ranks have met is often the slow one, made for logins and management.
// So each node tells all others what else it has: RDMA ports, devices of high-speed networks, and
// interfaces with IP, each with a name of the network that it belongs to. Two nodes with an offer
// of the same network can probably reach each other; whether they do is found out by messages
// (probe.cpp). A network whose speed is unknown is measured there, too.
//
// The kernel's files are read here, and no library is asked: loading one for each network would
// take longer than most jobs need to start, and some take over signals.

#include "bootstrap/candidates.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <rondo/transport/links.hpp>

namespace rondo::transport::bootstrap {
namespace {

namespace fs = std::filesystem;

// A kind of network, and what carries messages over it: the best first. Between two hosts (network
// namespaces) an allreduce of 4 bytes took 9 us by tcp and 15 by UCX, and large ones the same.
struct Way {
  const char* kind;
  const char* plugin;
  const char* provider;
};

constexpr std::array ways = {
    Way{"cxi", "ofi", "cxi"},     Way{"efa", "ofi", "efa"},    Way{"opx", "ofi", "opx"},
    Way{"psm2", "ofi", "psm2"},   Way{"gni", "ofi", "gni"},    Way{"verbs", "ucx", ""},
    Way{"verbs", "ofi", "verbs"}, Way{"verbs", "ofi", "psm3"}, Way{"tcp", "tcp", ""},
    Way{"tcp", "ucx", ""},        Way{"tcp", "ofi", "tcp"},
};

bool is_tcp(const Way& way) { return way.kind == std::string_view("tcp"); }

std::string read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// The names in a folder, sorted: the kernel's order is not the same everywhere.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:") || address.starts_with("169.254.");
}

// The interface's address that says which network it is in; links prefer the first IPv4 address.
std::size_t best_address(const Interface& interface) {
  std::size_t best = interface.addresses.size();
  for (std::size_t i = interface.addresses.size(); i-- > 0;) {
    if (is_link_local(interface.addresses[i])) continue;
    const bool v4 = interface.addresses[i].find(':') == std::string::npos;
    const bool best_is_v6 = best == interface.addresses.size() ||
                            interface.addresses[best].find(':') != std::string::npos;
    if (v4 || best_is_v6) best = i;
  }
  return best;
}

constexpr const char* excluded = "excluded by transport.interface";
constexpr const char* without_address = "its interface has no address";

/// The interfaces of a host that a pattern asks for, and their places in the pattern.
class Selection {
 public:
  Selection(const std::vector<Interface>& all, std::string_view pattern)
      : all_(&all),
        pattern_(pattern),
        // First: what it throws tells which interfaces there are.
        chosen_(pattern.empty() ? std::vector<Interface>() : select_interfaces(all, pattern)),
        names_some_(names_interfaces(pattern)) {}

  [[nodiscard]] const Interface* find(const std::string& name) const {
    const auto found = std::ranges::find(*all_, name, &Interface::name);
    return found == all_->end() ? nullptr : &*found;
  }

  /// Sets place and obstacle.
  void assess(const Interface& interface, Offer& offer) const {
    if (!names_some_) {
      offer.obstacle = is_excluded(interface, pattern_) ? excluded : why_unusual(interface);
      return;
    }
    const auto found = std::ranges::find(chosen_, interface.name, &Interface::name);
    if (found == chosen_.end()) {
      offer.obstacle = interface.up ? excluded : "down";
    } else {
      offer.place = static_cast<std::uint32_t>(found - chosen_.begin());
    }
  }

  /// The same for a device by the interfaces that belong to it. Where interfaces are named, it must
  /// be one of these, and up; else they must not all be excluded, and none needs to be up.
  void assess(const std::vector<const Interface*>& interfaces, Offer& offer) const {
    if (!names_some_) {
      const auto is_out = [&](const Interface* each) { return is_excluded(*each, pattern_); };
      if (!interfaces.empty() && std::ranges::all_of(interfaces, is_out)) offer.obstacle = excluded;
      return;
    }
    std::string obstacle = excluded;
    for (const Interface* interface : interfaces) {
      Offer assessed;
      assess(*interface, assessed);
      if (assessed.obstacle.empty()) {
        offer.place = assessed.place;
        return;
      }
      if (assessed.obstacle != excluded) obstacle = "its interface is " + assessed.obstacle;
    }
    offer.obstacle = std::move(obstacle);
  }

 private:
  const std::vector<Interface>* all_;
  std::string_view pattern_;
  std::vector<Interface> chosen_;
  bool names_some_;
};

Offer offer_of(const Interface& interface, const Selection& selection) {
  Offer offer{.kind = "tcp", .device = interface.name, .megabits = interface.megabits};
  selection.assess(interface, offer);
  const std::size_t best = best_address(interface);
  if (best < interface.networks.size()) {
    offer.address = interface.addresses[best];
    offer.network = interface.networks[best];
  } else if (offer.obstacle.empty()) {
    offer.obstacle = "has no address but a link-local one";
  }
  return offer;
}

// The interfaces that belong to an RDMA port.
std::vector<std::string> interfaces_of(const fs::path& device, const fs::path& port) {
  std::set<std::string> names;
  for (const std::string& index : names_in(port / "gid_attrs" / "ndevs")) {
    const std::string name = read_line(port / "gid_attrs" / "ndevs" / index);
    if (!name.empty()) names.insert(name);
  }
  if (names.empty()) {
    const auto of_device = names_in(device / "device" / "net");
    names.insert(of_device.begin(), of_device.end());
  }
  return {names.begin(), names.end()};
}

// Two ports of InfiniBand must have the upper half of their addresses in common; ports with
// Ethernet below them (RoCE) reach what their interfaces reach.
void find_rdma_network(const fs::path& port, const std::vector<const Interface*>& interfaces,
                       Offer& offer) {
  if (read_line(port / "link_layer") == "InfiniBand") {
    constexpr std::size_t subnet_digits = 19;
    offer.address = read_line(port / "gids" / "0");
    offer.network = "InfiniBand " + offer.address.substr(0, subnet_digits);
    return;
  }
  for (const Interface* interface : interfaces) {
    const std::size_t best = best_address(*interface);
    if (best >= interface->networks.size()) continue;
    offer.address = interface->addresses[best];
    offer.network = interface->networks[best];
    return;
  }
  offer.obstacle = without_address;
}

// "100 Gb/sec (4X EDR)"
std::uint32_t speed_of_port(const fs::path& port) {
  double gigabits = 0.0;
  std::ifstream(port / "rate") >> gigabits;
  return gigabits > 0.0 ? static_cast<std::uint32_t>(std::lround(gigabits * 1000.0)) : 0;
}

Offer offer_of_port(const fs::path& device, const std::string& number, const Selection& selection) {
  const fs::path port = device / "ports" / number;
  Offer offer{.kind = "verbs",
              .device = device.filename().string() + ":" + number,
              .megabits = speed_of_port(port)};
  std::vector<const Interface*> interfaces;
  for (const std::string& name : interfaces_of(device, port)) {
    if (const Interface* found = selection.find(name)) interfaces.push_back(found);
  }
  find_rdma_network(port, interfaces, offer);
  selection.assess(interfaces, offer);
  const std::string state = read_line(port / "state");
  if (!state.ends_with("ACTIVE")) offer.obstacle = "its port is " + state;
  return offer;
}

// Devices whose driver has a provider of its own in libfabric; the verbs over some of them are
// slow.
void add_rdma_device(const fs::path& device, const Selection& selection,
                     std::vector<Offer>& offers) {
  std::error_code error;
  const std::string driver =
      fs::read_symlink(device / "device" / "driver", error).filename().string();
  for (const std::string& number : names_in(device / "ports")) {
    Offer offer = offer_of_port(device, number, selection);
    const auto add_native = [&](const char* kind) {
      Offer native = offer;
      native.kind = kind;
      native.device = device.filename().string();
      native.network = kind;
      if (native.obstacle == without_address) native.obstacle.clear();
      offers.push_back(native);
    };
    if (driver == "efa") {
      add_native("efa");
      continue;
    }
    if (driver == "hfi1") {
      add_native("opx");
      add_native("psm2");
    }
    offers.push_back(std::move(offer));
  }
}

// Slingshot and Aries are no RDMA devices to the kernel.
void add_native_devices(const fs::path& root, const Selection& selection,
                        std::vector<Offer>& offers) {
  for (const std::string& name : names_in(root / "sys/class/cxi")) {
    Offer offer{.kind = "cxi", .device = name, .network = "cxi"};
    for (const std::string& net : names_in(root / "sys/class/cxi" / name / "device/net")) {
      if (const Interface* interface = selection.find(net)) {
        offer.megabits = interface->megabits;
        selection.assess(*interface, offer);
      }
    }
    offers.push_back(std::move(offer));
  }
  std::error_code error;
  if (fs::exists(root / "dev/kgni0", error)) {
    offers.push_back({.kind = "gni", .device = "kgni0", .network = "gni"});
  }
}

// The part of `text` before the first `mark`.
std::string before(const std::string& text, char mark) { return text.substr(0, text.find(mark)); }

bool names_only_tcp(const std::string& transports) {
  std::istringstream list(transports);
  bool tcp = false;
  for (std::string transport; std::getline(list, transport, ',');) {
    if (transport != "tcp" && transport != "self") return false;
    tcp = tcp || transport == "tcp";
  }
  return tcp;
}

/// Does `wanted` allow this way?
bool allows(const FabricName& wanted, const Way& way) {
  if (wanted.plugin != "auto" && wanted.plugin != way.plugin) return false;
  if (wanted.provider.empty()) return true;
  if (wanted.plugin == "ucx") return is_tcp(way) || !names_only_tcp(wanted.provider);
  const std::string provider = before(wanted.provider, ';');
  if (provider == way.provider) return true;
  const bool known =
      std::ranges::any_of(ways, [&](const Way& other) { return provider == other.provider; });
  // A provider that is not known here gets the interface, as sockets and udp want it.
  return !known && is_tcp(way);
}

/// One kind of network, looked for on all nodes.
class Search {
 public:
  Search(const std::vector<HostOffers>& nodes, Candidates& found)
      : nodes_(&nodes), found_(&found) {}

  /// Adds a candidate for each network of that kind that all nodes have; several where the user has
  /// named several ports of a node in it.
  void add_networks(const Candidate& like) {
    std::vector<std::string> networks;
    for (const Offer& offer : nodes_->front().offers) {
      const bool is_known = std::ranges::find(networks, offer.network) != networks.end();
      if (offer.kind == like.kind && offer.obstacle.empty() && !is_known) {
        networks.push_back(offer.network);
      }
    }
    for (const std::string& network : networks) {
      Candidate candidate = like;
      candidate.network = network;
      const std::size_t turns = most_places(candidate);
      for (; candidate.turn < turns; ++candidate.turn) add_network(candidate);
    }
  }

  /// Adds the interfaces by which the store was reached, unless they are a candidate already.
  void add_store(Candidate candidate) {
    candidate.devices.clear();
    for (const HostOffers& node : *nodes_) candidate.devices.push_back(node.store_interface);
    candidate.of_store = true;
    candidate.network = "the store's";
    // The last of its kind: it may lead through routers.
    candidate.place = ~std::uint32_t{0};
    const bool is_known = std::ranges::any_of(found_->ordered, [&](const Candidate& other) {
      return other.plugin == candidate.plugin && other.kind == candidate.kind && other.of_store;
    });
    if (!is_known) found_->ordered.push_back(std::move(candidate));
  }

 private:
  void add_network(Candidate candidate) {
    const std::string& network = candidate.network;
    std::set<std::pair<std::string, std::string>> owners;  // of addresses: address, machine
    std::set<std::string> addresses;
    candidate.of_store = true;
    for (const HostOffers& node : *nodes_) {
      const std::vector<const Offer*> offers = best_offers(node, candidate);
      if (offers.empty()) {
        leave_out(candidate.label() + ": " + why_absent(node, candidate.kind, network));
        return;
      }
      add_node(candidate, node, offers);
      if (offers.front()->address.empty()) continue;
      addresses.insert(offers.front()->address);
      owners.emplace(offers.front()->address, node.machine);
    }
    if (addresses.size() != owners.size()) {
      leave_out(candidate.label() + ": two hosts have the same address in " + network);
      return;
    }
    found_->ordered.push_back(std::move(candidate));
  }

  void add_node(Candidate& candidate, const HostOffers& node,
                const std::vector<const Offer*>& offers) const {
    // The candidate is as slow as its slowest node.
    const Offer& best = *offers.front();
    candidate.megabits =
        candidate.devices.empty() ? best.megabits : std::min(candidate.megabits, best.megabits);
    if (candidate.devices.empty()) candidate.place = best.place;
    std::string devices;
    for (const Offer* offer : offers) devices += (devices.empty() ? "" : ",") + offer->device;
    candidate.of_store =
        candidate.of_store && candidate.kind == "tcp" && devices == node.store_interface;
    candidate.devices.push_back(std::move(devices));
  }

  // All that a node has in a candidate's network.
  static std::vector<const Offer*> offers_in(const HostOffers& node, const Candidate& candidate) {
    std::vector<const Offer*> offers;
    for (const Offer& offer : node.offers) {
      if (offer.kind == candidate.kind && offer.network == candidate.network &&
          offer.obstacle.empty()) {
        offers.push_back(&offer);
      }
    }
    return offers;
  }

  // The places of these among what the user has named, the preferred first.
  static std::set<std::uint32_t> places_of(const std::vector<const Offer*>& offers) {
    std::set<std::uint32_t> places;
    for (const Offer* offer : offers) places.insert(offer->place);
    return places;
  }

  // The number of places on the node that has most.
  [[nodiscard]] std::size_t most_places(const Candidate& candidate) const {
    std::size_t most = 0;
    for (const HostOffers& node : *nodes_) {
      most = std::max(most, places_of(offers_in(node, candidate)).size());
    }
    return most;
  }

  // The rails of a node: all its ports in one network that are as fast as the fastest. Where the
  // user has named several in an order, only those whose turn it is count; a node that has fewer
  // takes its last again. TCP has one rail: the kernel sends over only one interface with IP in a
  // network.
  static std::vector<const Offer*> best_offers(const HostOffers& node, const Candidate& candidate) {
    std::vector<const Offer*> offers = offers_in(node, candidate);
    if (offers.empty()) return offers;
    const std::set<std::uint32_t> places = places_of(offers);
    const std::size_t turn = std::min<std::size_t>(candidate.turn, places.size() - 1);
    const std::uint32_t place = *std::next(places.begin(), static_cast<std::ptrdiff_t>(turn));
    std::erase_if(offers, [&](const Offer* offer) { return offer->place != place; });
    std::ranges::sort(offers, {}, [&](const Offer* offer) {
      return std::tuple(~offer->megabits, offer->device != node.store_interface, offer->device);
    });
    if (candidate.kind == "tcp") offers.resize(1);
    const std::uint32_t fastest = offers.front()->megabits;
    std::erase_if(offers, [&](const Offer* offer) { return offer->megabits < fastest; });
    return offers;
  }

  // Says which device `node` has in the network, if any, and why it is of no use.
  static std::string why_absent(const HostOffers& node, const std::string& kind,
                                const std::string& network) {
    const auto found = std::ranges::find_if(node.offers, [&](const Offer& offer) {
      return offer.kind == kind && offer.network == network;
    });
    if (found == node.offers.end()) return node.host + " has nothing in its network " + network;
    return found->device + " of " + node.host + ": " + found->obstacle;
  }

  void leave_out(std::string text) {
    auto& all = found_->left_out;
    if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
  }

  const std::vector<HostOffers>* nodes_;
  Candidates* found_;
};

std::string complaint(const std::string& name) {
  return "'" + name + "' is none of auto, tcp, ucx, ucx:TRANSPORTS, ofi, ofi:PROVIDER, shm";
}

}  // namespace

// UCX takes all rails of a node. A link over libfabric has one, so the ranks of a node take turns;
// providers that have one device for all do not know it by the kernel's name.
std::string Candidate::device_of(std::size_t node, std::size_t rank_on_node) const {
  if (plugin == "ucx" || kind == "tcp") return devices[node];
  if (kind != "verbs" && kind != "cxi" && kind != "efa") return {};
  std::vector<std::string> rails;
  std::istringstream list(devices[node]);
  for (std::string rail; std::getline(list, rail, ',');) rails.push_back(before(rail, ':'));
  return rails.empty() ? std::string() : rails[rank_on_node % rails.size()];
}

Candidate join_rails(const std::vector<const Candidate*>& rails) {
  Candidate joined = *rails.front();
  for (const Candidate* rail : std::span(rails).subspan(1)) {
    joined.network += " and " + rail->network;
    for (std::size_t node = 0; node < joined.devices.size(); ++node) {
      joined.devices[node] += "," + rail->devices[node];
    }
  }
  return joined;
}

bool is_last_network(const std::vector<Candidate>& ordered, std::size_t index,
                     const std::set<Candidate::Ports>& dead) {
  const auto later = std::span(ordered).subspan(index);
  return std::ranges::none_of(later, [&](const Candidate& candidate) {
    return candidate.ports() != ordered[index].ports() && !dead.contains(candidate.ports());
  });
}

const HostOffers* first_without(const std::vector<HostOffers>& nodes, std::string_view plugin) {
  const std::string name = " " + std::string(plugin) + " ";
  const auto lacks = [&](const HostOffers& node) {
    return (" " + node.plugins + " ").find(name) == std::string::npos;
  };
  const auto found = std::ranges::find_if(nodes, lacks);
  return found == nodes.end() ? nullptr : &*found;
}

std::vector<Offer> list_offers(const std::vector<Interface>& interfaces, std::string_view pattern,
                               const fs::path& root) {
  const Selection selection(interfaces, pattern);
  std::vector<Offer> offers;
  add_native_devices(root, selection, offers);
  const fs::path rdma = root / "sys/class/infiniband";
  for (const std::string& name : names_in(rdma)) add_rdma_device(rdma / name, selection, offers);
  for (const Interface& interface : interfaces) {
    offers.push_back(offer_of(interface, selection));
  }
  return offers;
}

FabricName parse_fabric(const std::string& name) {
  const std::size_t colon = name.find(':');
  const bool alone = colon == std::string::npos;
  FabricName fabric{.plugin = name.substr(0, colon),
                    .provider = alone ? "" : name.substr(colon + 1)};
  const bool single = fabric.plugin == "auto" || fabric.plugin == "shm" || fabric.plugin == "tcp";
  const bool several = fabric.plugin == "ucx" || fabric.plugin == "ofi";
  if ((single && alone) || (several && (alone || !fabric.provider.empty()))) return fabric;
  throw std::invalid_argument("rondo::transport: fabric " + complaint(name));
}

Candidates find_candidates(const FabricName& wanted, const std::vector<HostOffers>& nodes) {
  const bool one_machine = std::ranges::all_of(
      nodes, [&](const HostOffers& node) { return node.machine == nodes.front().machine; });
  Candidates found;
  Search search(nodes, found);
  for (const Way& way : ways) {
    if (!allows(wanted, way) || first_without(nodes, way.plugin)) continue;
    if (one_machine && !is_tcp(way) && wanted.provider.empty()) continue;
    const Candidate like{.kind = way.kind,
                         .plugin = way.plugin,
                         .provider = wanted.provider.empty() ? way.provider : wanted.provider};
    const std::size_t first = found.ordered.size();
    if (!one_machine || !is_tcp(way)) search.add_networks(like);
    if (is_tcp(way)) search.add_store(like);
    std::ranges::sort(found.ordered.begin() + static_cast<std::ptrdiff_t>(first),
                      found.ordered.end(), {}, [](const Candidate& candidate) {
                        return std::tuple(candidate.place, candidate.turn, ~candidate.megabits,
                                          !candidate.of_store, candidate.network);
                      });
  }
  // A provider that was asked for may know a device that the kernel's files do not show.
  const bool is_native = std::ranges::any_of(ways, [&](const Way& way) {
    return !is_tcp(way) && before(wanted.provider, ';') == way.provider;
  });
  if (found.ordered.empty() && is_native && !first_without(nodes, wanted.plugin)) {
    found.ordered.push_back({.kind = wanted.provider,
                             .plugin = wanted.plugin,
                             .provider = wanted.provider,
                             .network = wanted.provider,
                             .devices = std::vector<std::string>(nodes.size())});
  }
  return found;
}

}  // namespace rondo::transport::bootstrap

namespace rondo::transport {

std::string problem_of_fabric_name(const std::string& name) {
  try {
    static_cast<void>(bootstrap::parse_fabric(name));
    return {};
  } catch (const std::invalid_argument&) {
    return bootstrap::complaint(name);
  }
}

std::vector<NetworkFacts> networks(std::string_view interfaces) {
  std::vector<NetworkFacts> facts;
  for (bootstrap::Offer& offer : bootstrap::list_offers(bootstrap::list_interfaces(), interfaces)) {
    facts.push_back({.kind = std::move(offer.kind),
                     .device = std::move(offer.device),
                     .network = std::move(offer.network),
                     .address = std::move(offer.address),
                     .megabits = offer.megabits,
                     .problem = std::move(offer.obstacle)});
  }
  return facts;
}

}  // namespace rondo::transport
