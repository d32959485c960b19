#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::transport {
class World;
struct RankInfo;
}  // namespace rondo::transport

namespace rondo::train {

class BenchmarkStep;

// The costs of messages between the ranks of a World, and of computing beside each other; and
// whether they compute alike.
struct WorldCosts {
  LinkCost fabric = {};   // between two nodes; of one node, as within it
  LinkCost node = {};     // within one
  double slowdown = 1.0;  // see PlanOptions
  bool replicas = true;   // likewise
};

// Measures an allgather of two ranks on the first rank's node, and one of two ranks on different
// nodes, as often as gives medians: some milliseconds, and on slow links some tenths of a second.
// Known on rank 0; others get the default. No slowdown is measured. Collective.
[[nodiscard]] WorldCosts measure_world(transport::World& world);

// PlanOptions::ranks_per_node: all ranks where there is one node, and those of a node where nodes
// have equally many consecutive ranks. Else 1, by which every message counts as between nodes.
[[nodiscard]] int ranks_per_node(std::span<const transport::RankInfo> ranks);

// Has some host several ranks? Nodes may be fake.
[[nodiscard]] bool has_neighbours(const transport::World& world);

// The step of measure_slowdown(), which has been run twice: of `samples` or fewer, so that it has
// about 1e10 flops at most. It has a whole model, and an Executor of its own. Communicates nothing;
// throws what making an Executor throws.
[[nodiscard]] std::unique_ptr<BenchmarkStep> make_slowdown_step(const Model& model,
                                                                std::int64_t samples, int threads,
                                                                tensor::DataType type);

// PlanOptions::slowdown: the mean time of a step on the slowest rank while all ranks compute, to
// that of rank 0 while all others wait; at least 1, and 1 where no host has two ranks. Both are
// measured in turns, which takes about a second, and of large models three steps of either kind.
// `threads` are those of a rank. The same on all ranks. Collective.
[[nodiscard]] double measure_slowdown(transport::World& world, BenchmarkStep& step, int threads);

// How many threads of the first rank's host share a core, at least 1: a guess at the slowdown where
// a whole model may not fit into memory. `threads` are those of a rank.
[[nodiscard]] double ranks_per_core(const transport::World& world, int threads);

}  // namespace rondo::train
