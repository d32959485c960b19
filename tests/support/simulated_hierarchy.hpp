#pragma once

// Collectives of groups of ranks, as the transport runs them, over a wire that takes as long as its
// costs say (simulated_ranks.hpp). A group that has several ranks on each of its nodes passes
// three stages: on each node, among the owners of each shard, and on each node again.
//
// Between nodes the transport's own algorithms run. On a node the members wait for each other, and
// then for the node's memory.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"
#include "support/simulated_ranks.hpp"

namespace rondo::test {

/// Groups of `size` ranks each, whose numbers are `stride` apart.
struct SimulatedGroups {
  std::size_t size = 1;
  std::size_t stride = 1;
};

/// The ranks of a node synchronise before and behind their work in each other's memory.
inline constexpr double simulated_synchronisations = 2.0;

/// All groups do the same at the same time: those of a node share its memory and its port. Ports
/// are as busy as the operations before have left them, so times go on from one call to the next.
class SimulatedHierarchy {
 public:
  /// `shared_ports`: those that other operations use at the same time; null: own ones. Throws
  /// std::invalid_argument where groups and nodes do not divide the ranks, or where a group
  /// has several ranks on a node that another of its nodes has not.
  SimulatedHierarchy(std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes,
                     SimulatedGroups groups, SharedPorts::User* shared_ports = nullptr);
  /// One group of all ranks.
  SimulatedHierarchy(std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes)
      : SimulatedHierarchy(ranks, costs, segment_bytes, {.size = ranks}) {}

  [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }

  /// Rank r posts at second starts[r]. Returns when each has the sum. Several blocks are under way
  /// at once, as in the transport.
  [[nodiscard]] std::vector<double> allreduce(std::size_t bytes, std::span<const double> starts);

  /// The same of operations on one share for each member of a group, in bytes. They are taken to be
  /// one block.
  [[nodiscard]] std::vector<double> allgather(std::span<const std::size_t> shares,
                                              std::span<const double> starts);
  [[nodiscard]] std::vector<double> reduce_scatter(std::span<const std::size_t> shares,
                                                   std::span<const double> starts);

 private:
  [[nodiscard]] std::vector<double> allreduce_between_nodes(std::size_t bytes,
                                                            std::span<const double> starts);
  [[nodiscard]] std::vector<double> exchange(const transport::HierarchyPlan& plan,
                                             std::size_t block,
                                             transport::AllreduceAlgorithm algorithm,
                                             std::span<const double> starts);
  [[nodiscard]] std::vector<double> exchange_shares(transport::shm::Collective collective,
                                                    std::span<const std::size_t> shares,
                                                    std::span<const double> starts);
  template <typename Run>
  [[nodiscard]] std::vector<double> among_leaders(std::span<const double> starts, const Run& run);
  void wait_for_nodes(std::span<double> times, std::size_t moved_bytes) const;
  [[nodiscard]] std::vector<double> run_allreduce(SimulatedRanks& ranks,
                                                  transport::AllreduceAlgorithm algorithm,
                                                  std::size_t bytes,
                                                  std::span<const double> starts);

  std::size_t ranks_;
  SimulatedCosts costs_;
  SimulatedGroups groups_;
  std::size_t members_;  // of a group, on each of its nodes
  std::size_t nodes_;    // of a group
  transport::AlgorithmTable table_;
  std::vector<std::byte> data_;  // of all ranks: only times matter
  // They exchange over the fabric. Owners: all ranks, each with those at its place on other nodes;
  // leaders: the first member of each group on each node.
  std::unique_ptr<SimulatedRanks> owners_;
  std::unique_ptr<SimulatedRanks> leaders_;
};

}  // namespace rondo::test
