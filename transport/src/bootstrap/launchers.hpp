#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/launcher.hpp>
#include <rondo/transport/world.hpp>

#include "bootstrap/environment.hpp"
#include "memory/memory.hpp"

// Reads what launchers other than `rondo run` tell a rank, so that their ranks find each other.

namespace rondo::transport::bootstrap {

/// How the ranks of a launcher learn where rank 0's store is.
enum class Source {
  pmix,      ///< through PMIx' key-value space
  pmi,       ///< through PMI-1's
  slurm,     ///< from the variables of a Slurm step
  torchrun,  ///< from MASTER_ADDR and MASTER_PORT
};

/// The facts that the variables of one launcher state.
struct Launcher : LaunchedRank {
  Source source = Source::slurm;
  std::string said = {};  ///< for messages: "PMI_RANK=1 and PMI_SIZE=4"
};

/// The launcher that started this process as one of several ranks; nothing when none did.
///
/// mpirun and mpiexec may start their daemons by srun, so what a Slurm step says counts only where
/// they say nothing. A batch script is no step. Throws Error(bootstrap_failed) as launched() does.
[[nodiscard]] std::optional<Launcher> find_launcher();

/// The job of the ranks that `launcher` has started. Collective under PMIx and PMI, but only when
/// it is first called: a process keeps what it has learnt for its next World.
///
/// Ranks of one host need no store, unless `needs_store`. Where there is no key-value space, job
/// and port are derived from what the launcher says to all ranks alike, and a secret must come from
/// elsewhere. Throws Error(bootstrap_failed) that says what to do.
[[nodiscard]] LaunchInfo join_launcher(const Launcher& launcher, bool needs_store,
                                       std::chrono::milliseconds deadline);

/// A job whose ranks a host program brings together, and the open port of rank 0's store.
struct HostedJob {
  LaunchInfo launch = {};
  shm::Descriptor listener = {};
};

/// The job of the ranks that `allgather` joins. Collective: calls it twice. Rank 0 draws id and
/// secret. Throws Error(bootstrap_failed), and what `allgather` throws.
[[nodiscard]] HostedJob join_host_program(int rank, int size, const Allgather& allgather,
                                          const FabricOptions& options);

/// The names in a node list of Slurm: "n[01-03,7],login" are n01, n02, n03, n7 and login. Throws
/// Error(bootstrap_failed) when it is none.
[[nodiscard]] std::vector<std::string> expand_node_list(std::string_view list);

/// The numbers in Slurm's short form: "2(x3),1" are 2, 2, 2 and 1. Empty when it is none.
[[nodiscard]] std::vector<int> expand_task_counts(std::string_view text);

/// Rank 0's text on all ranks, over the PMI-1 of descriptor `pmi`. Throws Error(bootstrap_failed).
[[nodiscard]] std::string exchange_over_pmi(int pmi, int rank, const std::string& mine,
                                            std::chrono::milliseconds deadline);

/// A deadline in PMIx's seconds; "for ever" as the most that it can count.
[[nodiscard]] int pmix_timeout(std::chrono::milliseconds deadline) noexcept;

/// The same over PMIx, by the plug-in librondo-pmix.so.
[[nodiscard]] std::string exchange_over_pmix(int rank, const std::string& mine,
                                             std::chrono::milliseconds deadline);

}  // namespace rondo::transport::bootstrap
