#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The facts that this process has from its launcher, before it has exchanged anything with others.
struct LaunchedRank {
  std::string launcher;  ///< for people: "rondo run", "mpirun", "mpiexec", "srun", "torchrun"
  int rank = 0;
  int size = 1;
  int local_rank = -1;  ///< among the ranks of this host; -1: not told
  int local_size = 0;   ///< ranks of this host; 0: not told
};

/// Which rank this process was started as; nothing when no launcher says that it is one of several.
///
/// Reads variables alone, in this order: RONDO_RANK and RONDO_SIZE, which also count for one rank;
/// then those of PMIx (Open MPI's mpirun, `srun --mpi=pmix`), of PMI (hydra's mpiexec,
/// `srun --mpi=pmi2`), of torchrun, and of a Slurm step. World::attach() joins the same ranks.
///
/// Throws Error(Errc::bootstrap_failed) when the variables are incomplete, and when those of two
/// launchers contradict each other; the text names both.
[[nodiscard]] RONDO_TRANSPORT_API std::optional<LaunchedRank> launched();

/// Descriptors that a rank opens beside others while it connects to the ranks of its node, of which
/// there are so many: for each a process, a flight recorder, and the socket over which they come.
/// The sockets are closed when all have come.
[[nodiscard]] constexpr std::int64_t descriptors_to_connect(std::int64_t ranks_of_node) noexcept {
  return 3 * ranks_of_node + 64;
}

}  // namespace rondo::transport
