#pragma once

#include <string>
#include <vector>

#include "machine.hpp"

namespace rondo::tools {

/// Whether ranks are bound to cores.
enum class Binding { automatic, none };

/// What a user asks of a placement; 0 leaves the choice to the machine.
struct PlacementRequest {
  int ranks = 0;
  int threads = 0;  ///< per rank
  Binding binding = Binding::automatic;
  bool oversubscribe = false;
};

/// Where the ranks of one node run.
struct Placement {
  int threads = 1;                            ///< of every rank
  std::vector<std::vector<Core>> cores = {};  ///< per rank; empty: not bound
  std::string note = {};                      ///< why ranks are not bound; may be empty

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(cores.size()); }
};

/// Divides the cores evenly: every rank gets a set of its own, and no set crosses a NUMA domain
/// that it need not cross.
///
/// Defaults: one rank per NUMA domain, and as many threads as the smallest share has cores. With
/// more ranks than cores each rank gets one thread and none is bound. Throws UsageError when
/// threads that were asked for exceed the cores, unless `oversubscribe`.
[[nodiscard]] Placement place(const Machine& machine, const PlacementRequest& request);

/// "core 3", "cores 0-3", "cores 0-1,8-9": by the first hardware thread of each.
[[nodiscard]] std::string describe(const std::vector<Core>& cores);

}  // namespace rondo::tools
