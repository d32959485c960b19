#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The cost of the bootstrap of a job over several nodes.
struct BootstrapCost {
  int ranks = 0;
  int nodes = 0;
  double join_seconds = 0;      ///< until all ranks have proved who they are, and know their node
  double seconds = 0;           ///< until the last rank has all that it needs
  std::size_t store_bytes = 0;  ///< the most memory that the store's process had
  std::uint64_t received_bytes = 0;  ///< by all ranks together, from the store
};

/// Plays the bootstrap of `ranks` ranks on nodes of `ranks_per_node` over loopback, and measures
/// it.
///
/// The store is the real one, in a process of its own. The ranks are connections of the calling
/// thread: they send the frames of real ones, and check what they receive. Messages that ranks of a
/// node pass on to each other are not played, because nodes do that at the same time.
///
/// For programs of one thread: it forks. Throws Error(bootstrap_failed) when the bootstrap fails,
/// takes longer than `deadline`, or needs more descriptors than the process may have.
[[nodiscard]] RONDO_TRANSPORT_API BootstrapCost
rehearse_bootstrap(int ranks, int ranks_per_node, std::chrono::milliseconds deadline);

}  // namespace rondo::transport
