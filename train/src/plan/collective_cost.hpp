#pragma once

#include <rondo/train/plan.hpp>

namespace rondo::train {

// Ranks of one collective: `size` of them, numbers `stride` apart.
struct Group {
  int size = 1;
  int stride = 1;
};

// Seconds of an allgather or a reduce-scatter that leaves or takes `words` on every rank; an
// allreduce is two of them. The two levels are those of plan.hpp.
[[nodiscard]] double collective_seconds(double words, Group group, const PlanOptions& options);

// Seconds of a message of `words` to the neighbour in the group.
[[nodiscard]] double halo_seconds(double words, Group group, const PlanOptions& options);

}  // namespace rondo::train
