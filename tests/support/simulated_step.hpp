#pragma once

// A training step of ranks that split samples, simulated: every rank computes at its own speed, and
// its weight gradients are reduced by the transport's own algorithms over a wire that takes as long
// as its costs say (simulated_ranks.hpp). This finds what the planner's closed forms leave out:
// ranks that wait for slower ones, blocks of a hierarchical reduction that overlap, ports that
// ranks share, and the algorithm that the transport takes for a size.
//
// Why not SimGrid: there the transport's algorithms would have to be written again, and a mistake
// of theirs would not be found.

#include <cstddef>
#include <span>
#include <vector>

#include "support/simulated_hierarchy.hpp"

namespace rondo::test {

/// The work of a rank in a step.
struct SimulatedWork {
  struct Bucket {
    double final_seconds = 0.0;  ///< from the begin of the step, on a rank of speed 1
    std::size_t bytes = 0;
  };
  std::vector<Bucket> buckets = {};  ///< in the order in which they are reduced
  double backward_end = 0.0;         ///< from the begin of the step
  double update_seconds = 0.0;
};

/// Synchronous steps, one after another. Rank r begins its first one at second 0, and computes
/// slowness[r] times as long as the work says. A bucket is posted when it is final and reduced when
/// the one before it has been; the optimizer runs when all are. Returns when each step has ended on
/// the last rank.
[[nodiscard]] std::vector<double> simulate_steps(SimulatedHierarchy& ranks,
                                                 const SimulatedWork& work,
                                                 std::span<const double> slowness,
                                                 std::size_t steps);

}  // namespace rondo::test
