#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// The network interfaces of this host.

namespace rondo::transport::bootstrap {

/// A network interface of this host.
struct Interface {
  std::string name = {};
  bool up = false;  ///< switched on, and its line works
  bool loopback = false;
  std::vector<std::string> addresses = {};  ///< IPv4 and IPv6, without prefix length
  std::vector<std::string> networks = {};   ///< of each address: "10.0.0.0/24"
  std::uint32_t megabits = 0;               ///< per second; 0: unknown
};

/// Lists the interfaces of this network namespace, as the kernel has them.
[[nodiscard]] std::vector<Interface> list_interfaces();

/// The Mbit/s of the interface whose folder in /sys/class/net is `folder`; 0 when the kernel does
/// not know them, or makes them up, as for a veth.
[[nodiscard]] std::uint32_t speed_of_interface(const std::filesystem::path& folder);

/// The interfaces of `all` that `pattern` asks for.
///
/// - "ib0,eth*": names and globs, the first named first.
/// - "10.0.0.0/8,fd00::/16,192.168.0.7": those that have an address in there.
/// - "^docker0,^10.0.0.0/8": all but these; an exclusion that matches nothing has no effect.
/// - "" and exclusions alone choose among those that are up and neither loopback nor made for
///   containers and virtual machines (docker*, veth*, br-*, virbr*, cni*). A named interface is
///   taken even if it is one of these.
///
/// It passes over interfaces that are down. Throws Error(bootstrap_failed) that lists what exists
/// when a part of the pattern matches nothing, when it is no pattern, and when nothing is left.
[[nodiscard]] std::vector<Interface> select_interfaces(const std::vector<Interface>& all,
                                                       std::string_view pattern);

/// Does `pattern` name interfaces, rather than only exclude some? Then the first named is
/// preferred.
[[nodiscard]] bool names_interfaces(std::string_view pattern);

/// Does an exclusion of `pattern` match `interface`?
[[nodiscard]] bool is_excluded(const Interface& interface, std::string_view pattern);

/// Why `interface` is not chosen unless it is named; empty when it is.
[[nodiscard]] std::string why_unusual(const Interface& interface);

/// The name of the interface over which this host reaches the store, by its address there.
///
/// An empty pattern allows it whatever its name is, and loopback, too, when all ranks are on this
/// host. If the pattern does not allow it, the first that the pattern selects.
[[nodiscard]] std::string choose_interface(const std::vector<Interface>& all,
                                           std::string_view pattern, std::string_view reached);

}  // namespace rondo::transport::bootstrap
