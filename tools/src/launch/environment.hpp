#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rondo::tools {

/// The facts that `rondo run` tells a rank through its environment.
struct RankEnvironment {
  std::string coordinator = {};            ///< RONDO_COORDINATOR: where the ranks find each other
  int rank = 0;                            ///< RONDO_RANK
  int size = 1;                            ///< RONDO_SIZE
  int local_rank = 0;                      ///< RONDO_LOCAL_RANK: among the ranks of this host
  int threads = 1;                         ///< RONDO_THREADS
  int listener = -1;                       ///< RONDO_LISTENER: an inherited socket; -1: none
  int secret = -1;                         ///< RONDO_SECRET_FD: an inherited file; -1: none
  int recorder = -1;                       ///< RONDO_RECORDER: inherited memory; -1: none
  std::vector<std::string> settings = {};  ///< "NAME=value": about links, for all ranks
};

/// Was this process started as a rank, by `rondo run` or another launcher (see
/// transport::launched(), whose errors this throws as std::invalid_argument)?
[[nodiscard]] bool is_rank();

/// By one that does not know Rondo: mpirun, mpiexec, srun or torchrun.
[[nodiscard]] bool is_launched_by_others();

/// The rank's number; "0" when this process was not started as a rank.
[[nodiscard]] std::string rank_name();

/// Is it the first rank of its host, as far as its launcher has told?
[[nodiscard]] bool is_first_of_host();

/// The number of ranks; 0 when this process was not started as a rank.
[[nodiscard]] int size_from_environment();

/// The threads that the launcher meant this rank to have; 0 when there was no launcher.
[[nodiscard]] int threads_from_environment();

/// RONDO_FAKE_NODES; 0 when it is not set.
[[nodiscard]] int fake_nodes_from_environment();

/// Where a rank writes its own flight record when it fails: to `folder`, or nowhere (an empty path)
/// under `rondo run`, which writes those of all ranks.
[[nodiscard]] std::filesystem::path own_records_in(const std::filesystem::path& folder);

/// This process' environment with the rank's variables, as "NAME=value". OMP_NUM_THREADS is set
/// unless the user has set it. The user's settings of links stay as they are unless `settings`
/// replace them.
[[nodiscard]] std::vector<std::string> environment_of(const RankEnvironment& rank);

/// How a user wants nodes to reach each other. What is not given is left to the environment.
struct FabricRequest {
  std::optional<int> fake_nodes = {};
  std::optional<std::string> fabric = {};
  std::optional<std::string> interface = {};
  std::optional<double> latency_us = {};
  std::optional<double> bandwidth_gbs = {};
};

/// The nodes that `ranks` ranks of this machine are to count as: what `request` or else
/// RONDO_FAKE_NODES says, else 1. Throws UsageError when there are fewer ranks, and when the other
/// options need more than one node.
[[nodiscard]] int fake_nodes_of(const FabricRequest& request, int ranks);

/// `request` as "NAME=value" for the ranks' environment.
[[nodiscard]] std::vector<std::string> environment_of(const FabricRequest& request);

/// In a process that is a rank already: throws UsageError when a user asks for another number of
/// ranks than there are (0: for none), or for links that its environment does not name, and
/// std::invalid_argument when its environment makes no sense. Under another launcher than `rondo
/// run` the links are put into the environment of this process.
void refuse_other_job(int ranks, const FabricRequest& fabric);

}  // namespace rondo::tools
