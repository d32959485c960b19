#pragma once

#include <string>
#include <vector>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// What this host knows of one way between ranks.
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

}  // namespace rondo::transport
