#pragma once

// A training step on a grid, simulated: ranks that share the work of a layer exchange activations,
// halos and their gradients before and behind what they compute, and wait for each other there.
// Gradients of weights are reduced meanwhile. Ranks that split samples alone exchange nothing else.
//
// This finds what the planner's closed forms leave out: ranks that wait for slower ones, blocks of
// a hierarchical reduction that overlap, ports that ranks share, and the algorithm that the
// transport takes for a size. Why not SimGrid: there the transport's algorithms would have to be
// written again, and a mistake of theirs would not be found.
//
// Messages are run by the transport's own algorithm (simulated_ranks.hpp), so that latencies
// overlap where they do in a job, and collectives as simulated_hierarchy.hpp says. Reductions and
// exchanges share the ports between nodes (shared_ports.hpp); a node's memory each of the two has
// for itself.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "support/simulated_hierarchy.hpp"
#include "support/simulated_ranks.hpp"

namespace rondo::test {

/// An exchange among the ranks of each group; all groups exchange at the same time.
struct SimulatedExchange {
  enum class Kind : std::uint8_t { allgather, reduce_scatter, allreduce, messages };

  Kind kind = Kind::messages;
  SimulatedGroups groups = {};
  /// For an allgather or reduce_scatter: each member's share; for an allreduce: one number. For
  /// messages: the bytes from each member to each, row by row, where 0 is no message.
  std::vector<std::size_t> bytes = {};

  /// The bytes that the ranks of one group send together, where collectives are rings.
  [[nodiscard]] std::size_t sent_bytes() const;
};

/// A part of a step between two exchanges.
struct SimulatedPhase {
  std::optional<SimulatedExchange> exchange = {};
  /// Does the exchange go on while this phase computes? Else it computes on what was exchanged.
  bool beside = false;
  double seconds = 0.0;  ///< of computing, on a rank of speed 1
  /// Gradients that are final when the phase has computed: reduced behind those before them.
  std::optional<SimulatedExchange> reduction = {};
};

/// Ranks and the wire between them, as the exchanges so far have left it.
class SimulatedGrid {
 public:
  /// `shared_ports`: as SimulatedHierarchy.
  SimulatedGrid(std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes,
                SharedPorts::User* shared_ports = nullptr);

  [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }

  /// Rank r begins at second starts[r]. Returns when each is done. Throws std::invalid_argument
  /// where SimulatedHierarchy does.
  [[nodiscard]] std::vector<double> run(const SimulatedExchange& exchange,
                                        std::span<const double> starts);

 private:
  [[nodiscard]] std::vector<double> run_messages(const SimulatedExchange& exchange,
                                                 std::span<const double> starts);
  [[nodiscard]] SimulatedHierarchy& hierarchy_of(const SimulatedGroups& groups);
  [[nodiscard]] SimulatedRanks& ranks_in(const SimulatedGroups& groups);

  using Key = std::pair<std::size_t, std::size_t>;  // of groups

  std::size_t ranks_;
  SimulatedCosts costs_;
  std::size_t segment_bytes_;
  SharedPorts::User* shared_ports_;
  std::map<Key, std::unique_ptr<SimulatedHierarchy>> for_collectives_;
  std::map<Key, std::unique_ptr<SimulatedRanks>> for_messages_;
  std::vector<std::byte> data_;  // of all ranks: only times matter
};

/// Steps one after another. Rank r begins its first one at second 0, and computes slowness[r] times
/// as long as the phases say. The optimizer runs when all gradients are reduced. Returns when each
/// step has ended on the last rank.
[[nodiscard]] std::vector<double> simulate_grid_steps(
    std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes,
    std::span<const SimulatedPhase> phases, double update_seconds, std::span<const double> slowness,
    std::size_t steps);

}  // namespace rondo::test
