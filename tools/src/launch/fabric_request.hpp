#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rondo::tools {

/// How a user wants nodes to reach each other. What is not given is left to the environment.
struct FabricRequest {
  std::optional<int> fake_nodes = {};
  std::optional<std::string> fabric = {};
  std::optional<std::string> interface = {};
  std::optional<double> latency_us = {};
  std::optional<double> bandwidth_gbs = {};
};

/// The nodes that `ranks` ranks of this machine are to count as: what `request` or else
/// RONDO_FAKE_NODES says, else 1. Throws UsageError when there are fewer ranks, and when the other
/// options need more than one node.
[[nodiscard]] int fake_nodes_of(const FabricRequest& request, int ranks);

/// `request` as "NAME=value" for the ranks' environment.
[[nodiscard]] std::vector<std::string> environment_of(const FabricRequest& request);

/// In a process that is a rank already: throws UsageError when `request` asks for anything that
/// its environment does not say.
void refuse_other_fabric(const FabricRequest& request);

}  // namespace rondo::tools
