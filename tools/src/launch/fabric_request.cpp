#include "launch/fabric_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "exit_status.hpp"
#include "launch/environment.hpp"

namespace rondo::tools {
namespace {

// Would a single node have no use for `request`?
bool needs_nodes(const FabricRequest& request) {
  return request.fabric || request.interface || request.latency_us || request.bandwidth_gbs;
}

}  // namespace

int fake_nodes_of(const FabricRequest& request, int ranks) {
  const int nodes = request.fake_nodes.value_or(std::max(fake_nodes_from_environment(), 1));
  if (nodes > ranks) {
    throw UsageError(fmt::format(
        "{} fake nodes need at least as many ranks, but there are {}; give -n {} or more", nodes,
        ranks, nodes));
  }
  if (nodes == 1 && needs_nodes(request)) {
    throw UsageError(
        "--fabric, --interface, --latency-us and --bandwidth-gbs are about links between nodes, "
        "but there is one node; add --fake-nodes 2");
  }
  return nodes;
}

std::vector<std::string> environment_of(const FabricRequest& request) {
  std::vector<std::string> entries;
  if (request.fake_nodes)
    entries.push_back(fmt::format("RONDO_FAKE_NODES={}", *request.fake_nodes));
  if (request.fabric) entries.push_back("RONDO_FABRIC=" + *request.fabric);
  if (request.interface) entries.push_back("RONDO_INTERFACE=" + *request.interface);
  if (request.latency_us)
    entries.push_back(fmt::format("RONDO_LATENCY_US={}", *request.latency_us));
  if (request.bandwidth_gbs) {
    entries.push_back(fmt::format("RONDO_BANDWIDTH_GBS={}", *request.bandwidth_gbs));
  }
  return entries;
}

void refuse_other_fabric(const FabricRequest& request) {
  for (const std::string& entry : environment_of(request)) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    const std::string wanted = entry.substr(equals + 1);
    const char* here = std::getenv(name.c_str());
    if (here != nullptr && wanted == here) continue;
    throw UsageError(
        fmt::format("this process is a rank already, and ranks take their links from the "
                    "environment: there {} is {}, but '{}' is asked for; set it for every rank, or "
                    "give the option to `rondo run`, which sets it",
                    name, here == nullptr ? "not set" : fmt::format("'{}'", here), wanted));
  }
}

}  // namespace rondo::tools
