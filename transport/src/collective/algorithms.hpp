#pragma once

#include <span>
#include <stdexcept>

#include "collective/operation.hpp"

// The list of algorithms. Of those that belong to an operation's protocol, the first that suits it
// runs. To add an algorithm: one file with its class and its constant, and one line here.
#define RONDO_TRANSPORT_ALGORITHMS(ALGORITHM)                               \
  /* Inside a node: node/small.cpp, node/direct.cpp and node/staged.cpp. */ \
  ALGORITHM(small)                                                          \
  ALGORITHM(direct_reduce)                                                  \
  ALGORITHM(direct_reduce_scatter)                                          \
  ALGORITHM(direct_pull)                                                    \
  ALGORITHM(staged_reduce)                                                  \
  ALGORITHM(staged_exchange)                                                \
  ALGORITHM(staged_pull)                                                    \
  /* Between nodes: the files of fabric/, named after their algorithms. */  \
  ALGORITHM(hierarchical_allreduce)                                         \
  ALGORITHM(doubling_allreduce)                                             \
  ALGORITHM(ring)                                                           \
  ALGORITHM(tree_broadcast)                                                 \
  ALGORITHM(tree_reduce)                                                    \
  ALGORITHM(pairwise_alltoall)                                              \
  ALGORITHM(dissemination_barrier)

namespace rondo::transport {

namespace algorithms {
#define RONDO_DECLARE(name) extern const Algorithm name;
RONDO_TRANSPORT_ALGORITHMS(RONDO_DECLARE)
#undef RONDO_DECLARE
}  // namespace algorithms

#define RONDO_ADDRESS(name) &algorithms::name,
inline constexpr const Algorithm* all_algorithms[] = {RONDO_TRANSPORT_ALGORITHMS(RONDO_ADDRESS)};
#undef RONDO_ADDRESS

/// The first of `among` that runs what was posted by this protocol. The same on all ranks.
[[nodiscard]] inline const Algorithm& choose(
    Protocol protocol, const Group& group, const Posted& posted,
    std::span<const Algorithm* const> among = all_algorithms) {
  for (const Algorithm* algorithm : among) {
    if (algorithm->protocol == protocol && algorithm->suits(group, posted)) return *algorithm;
  }
  throw std::logic_error("rondo::transport: no algorithm runs this collective");
}

}  // namespace rondo::transport
