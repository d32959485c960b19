// The network interfaces of this host, and those of them that a pattern asks for.
//
// A host has several interfaces, and some lead nowhere: bridges of containers, cables that are not
// plugged in. A pattern of names and networks selects among them; without one, those are passed
// over that are down or made for containers and virtual machines.

#include "bootstrap/interfaces.hpp"

#include <fnmatch.h>
#include <ifaddrs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <rondo/transport/error.hpp>

#include "bootstrap/sockets.hpp"

namespace rondo::transport::bootstrap {
namespace {

namespace fs = std::filesystem;

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
  throw Error(Errc::bootstrap_failed,
              what + "; this host has " + (existing.empty() ? "no interface" : existing));
}

// One part of a pattern: what stands between two commas. It is a network if it reads as one,
// otherwise a glob of names.
class InterfacePart {
 public:
  InterfacePart(std::string_view text, const std::vector<Interface>& all) {
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

std::vector<InterfacePart> parse(std::string_view pattern, const std::vector<Interface>& all) {
  std::vector<InterfacePart> parts;
  while (!pattern.empty()) {
    const std::size_t comma = pattern.find(',');
    parts.emplace_back(pattern.substr(0, comma), all);
    if (comma == std::string_view::npos) break;
    pattern.remove_prefix(comma + 1);
    if (pattern.empty()) fail("interface: a name is missing after the last comma", all);
  }
  return parts;
}

// Fit to be chosen without being named.
bool usual(const Interface& interface) { return why_unusual(interface).empty(); }

// Appends what matches `part` and is up, unless it was chosen before: the order of the pattern is
// that of preference. Returns whether something that matches is up.
bool append_matches(std::vector<Interface>& chosen, const InterfacePart& part,
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

// The network of an address, from the mask that the kernel keeps beside it.
std::string network_of(const sockaddr& address, const sockaddr& mask) {
  const bool v4 = address.sa_family == AF_INET;
  const auto raw = [v4](const sockaddr& from) {
    const void* bytes =
        v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(from).sin_addr)
           : &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
    std::array<std::uint8_t, 16> copy{};
    std::memcpy(copy.data(), bytes, v4 ? sizeof(in_addr) : sizeof(in6_addr));
    return copy;
  };
  std::array<std::uint8_t, 16> bytes = raw(address);
  const std::array<std::uint8_t, 16> bits = raw(mask);
  int prefix = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(bytes[i] & bits[i]);
    prefix += std::popcount(bits[i]);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(address.sa_family, bytes.data(), text.data(), text.size());
  return std::string(text.data()) + "/" + std::to_string(prefix);
}

}  // namespace

std::string why_unusual(const Interface& interface) {
  if (!interface.up) return "down";
  if (interface.loopback) return "loopback";
  if (interface.addresses.empty()) return "has no address";
  // Bridges and virtual devices of containers are up, too, but lead to no other host.
  constexpr std::array<std::string_view, 5> inner = {"docker", "veth", "br-", "virbr", "cni"};
  const bool is_inner = std::ranges::any_of(
      inner, [&](std::string_view prefix) { return interface.name.starts_with(prefix); });
  return is_inner ? "made for containers or virtual machines" : "";
}

// A device of its own or another interface below it has a real speed; a veth or a tap says
// 10,000 or 10 whatever it reaches.
std::uint32_t speed_of_interface(const fs::path& folder) {
  std::error_code error;
  bool real = fs::exists(folder / "device", error);
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    real = real || entry.path().filename().string().starts_with("lower_");
  }
  std::int64_t megabits = 0;
  if (!real || !(std::ifstream(folder / "speed") >> megabits)) return 0;
  return megabits > 0 ? static_cast<std::uint32_t>(megabits) : 0;
}

std::vector<Interface> list_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    throw Error(Errc::bootstrap_failed, "interface: the kernel does not list them");
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
                     .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                     .megabits = speed_of_interface(fs::path("/sys/class/net") / name)});
      found_at = all.end() - 1;
    }
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found_at->addresses.push_back(Address(entry->ifa_addr, static_cast<socklen_t>(length)).host());
    found_at->networks.push_back(
        entry->ifa_netmask == nullptr ? "" : network_of(*entry->ifa_addr, *entry->ifa_netmask));
  }
  return all;
}

namespace {

bool is_excluded(const Interface& interface, const std::vector<InterfacePart>& parts) {
  return std::ranges::any_of(
      parts, [&](const InterfacePart& part) { return part.excludes() && part.matches(interface); });
}

}  // namespace

bool is_excluded(const Interface& interface, std::string_view pattern) {
  return is_excluded(interface, parse(pattern, {}));
}

std::vector<Interface> select_interfaces(const std::vector<Interface>& all,
                                         std::string_view pattern) {
  const std::vector<InterfacePart> parts = parse(pattern, all);
  std::vector<Interface> chosen;
  if (!names_interfaces(pattern)) std::ranges::copy_if(all, std::back_inserter(chosen), usual);
  // Exclusions come last, wherever they stand in the pattern.
  std::string down;
  for (const InterfacePart& part : parts) {
    if (!part.excludes() && !append_matches(chosen, part, all)) down = part.text();
  }
  if (chosen.empty() && !down.empty()) {
    fail("interface: what matches '" + down + "' is down", all);
  }
  std::erase_if(chosen, [&](const Interface& interface) { return is_excluded(interface, parts); });
  if (chosen.empty()) {
    fail("interface: '" + std::string(pattern) + "' leaves none to reach other hosts by", all);
  }
  return chosen;
}

bool names_interfaces(std::string_view pattern) {
  const std::vector<InterfacePart> parts = parse(pattern, {});
  return std::ranges::any_of(parts, [](const InterfacePart& part) { return !part.excludes(); });
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

}  // namespace rondo::transport::bootstrap
