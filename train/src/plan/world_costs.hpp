#pragma once

#include <rondo/train/plan.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

// What messages cost between the ranks of a World, and which of them share cores.
struct WorldCosts {
  LinkCost fabric = {};  // between two nodes; of one node, as within it
  LinkCost node = {};    // within one
  double ranks_per_core = 1.0;
};

// Measures an allgather of two ranks on the first rank's node, and one of two ranks on different
// nodes, as often as gives medians: some milliseconds, and on slow links some tenths of a second.
// `threads` are those of a rank. Known on rank 0; others get the default. Collective.
[[nodiscard]] WorldCosts measure_world(transport::World& world, int threads);

}  // namespace rondo::train
