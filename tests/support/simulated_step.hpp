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
#include <memory>
#include <span>
#include <vector>

#include "collective/algorithms.hpp"
#include "fabric/hierarchical.hpp"
#include "support/simulated_ranks.hpp"

namespace rondo::test {

/// Of the ranks of a node: before and behind what they do in each other's memory.
inline constexpr double simulated_synchronisations = 2.0;

/// Allreduces of equal nodes' ranks, as the transport runs them: the table of sizes chooses between
/// doubling and a ring; where nodes have several ranks, blocks pass a reduction on each node, an
/// exchange among the owners of each shard, and a copy on each node.
class SimulatedAllreduce {
 public:
  /// `costs.ranks_per_node` divides `ranks`.
  SimulatedAllreduce(std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes);

  [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }

  /// Rank r posts at second starts[r]. Returns when each has the sum. Ports are as busy as the
  /// allreduces before have left them, so times go on from one call to the next.
  [[nodiscard]] std::vector<double> run(std::size_t bytes, std::span<const double> starts);

 private:
  [[nodiscard]] std::vector<double> between_nodes(std::size_t bytes,
                                                  std::span<const double> starts);
  [[nodiscard]] std::vector<double> exchange(const transport::HierarchyPlan& plan,
                                             std::size_t block, bool is_short,
                                             std::span<const double> starts);
  void wait_for_nodes(std::span<double> times, double moved_bytes) const;
  [[nodiscard]] std::vector<double> simulate(SimulatedRanks& ranks, bool doubles, std::size_t bytes,
                                             std::span<const double> starts);

  std::size_t ranks_;
  SimulatedCosts costs_;
  std::size_t nodes_;
  transport::AlgorithmTable table_;
  std::vector<std::byte> data_;  // of all ranks: only times matter
  // Those that exchange over the fabric: all ranks, grouped by their place on the node; one rank of
  // each node.
  std::unique_ptr<SimulatedRanks> owners_;
  std::unique_ptr<SimulatedRanks> leaders_;
};

/// What a rank does in a step.
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
[[nodiscard]] std::vector<double> simulate_steps(SimulatedAllreduce& allreduce,
                                                 const SimulatedWork& work,
                                                 std::span<const double> slowness,
                                                 std::size_t steps);

}  // namespace rondo::test
