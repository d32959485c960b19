#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The facts that this host knows about one kind of link between ranks.
struct LinkFacts {
  std::string name = {};                ///< "shm", "ofi", "tcp", "ucx"
  std::string path = {};                ///< of its plug-in; empty: built in, or not found
  std::string problem = {};             ///< why it cannot be used; empty when it can
  std::vector<std::string> facts = {};  ///< "version ...", then "provider NAME ..."
};

/// All links that this version knows, usable or not; shared memory comes first.
///
/// Loads the plug-ins that are found, which stay loaded: see RONDO_PLUGIN_PATH in
/// docs/on-a-cluster.md. Opens none of them, and throws for none of them.
[[nodiscard]] RONDO_TRANSPORT_API std::vector<LinkFacts> links();

/// A network that this host could reach others by.
struct NetworkFacts {
  std::string kind = {};       ///< "tcp", "verbs", or a provider of libfabric as "cxi"
  std::string device = {};     ///< "eth0", "mlx5_0:1"
  std::string network = {};    ///< "10.0.0.0/24", "InfiniBand fe80:0000:0000:0000"
  std::string address = {};    ///< of this host in it
  std::uint32_t megabits = 0;  ///< per second, as the kernel says; 0: unknown
  std::string problem = {};    ///< why it is left out; empty when it is not
};

/// All of them, also those that are left out, as a World over several nodes would find them: it
/// takes the best that all of its nodes have. `interfaces`: see FabricOptions::interface. Throws
/// Error(bootstrap_failed) when that matches nothing.
[[nodiscard]] RONDO_TRANSPORT_API std::vector<NetworkFacts> networks(
    std::string_view interfaces = {});

/// Why `name` cannot be a FabricOptions::name; empty when it can. Whether the transport or provider
/// exists is for the plug-in to say.
[[nodiscard]] RONDO_TRANSPORT_API std::string problem_of_fabric_name(const std::string& name);

}  // namespace rondo::transport
