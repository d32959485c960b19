#pragma once

#include <string>
#include <vector>

namespace rondo::tools {

/// What a launcher tells a rank through its environment.
struct RankEnvironment {
  std::string coordinator = {};            ///< RONDO_COORDINATOR: where the ranks meet
  int rank = 0;                            ///< RONDO_RANK
  int size = 1;                            ///< RONDO_SIZE
  int threads = 1;                         ///< RONDO_THREADS
  int listener = -1;                       ///< RONDO_LISTENER: an inherited socket; -1: none
  int secret = -1;                         ///< RONDO_SECRET_FD: an inherited file; -1: none
  int recorder = -1;                       ///< RONDO_RECORDER: inherited memory; -1: none
  std::vector<std::string> settings = {};  ///< "NAME=value": about links, for all ranks
};

/// Was this process started as a rank?
[[nodiscard]] bool is_rank();

/// RONDO_RANK as it stands in the environment; "0" when this process was not started as a rank.
[[nodiscard]] std::string rank_name();

/// RONDO_SIZE; 0 when this process was not started as a rank.
[[nodiscard]] int size_from_environment();

/// The threads that the launcher meant this rank to have; 0 when there was no launcher.
[[nodiscard]] int threads_from_environment();

/// RONDO_FAKE_NODES; 0 when it is not set.
[[nodiscard]] int fake_nodes_from_environment();

/// This process' environment with the rank's variables, as "NAME=value". OMP_NUM_THREADS is set
/// unless the user has set it. What the user has
/// set about links stays as it is unless `settings` replace it.
[[nodiscard]] std::vector<std::string> environment_of(const RankEnvironment& rank);

}  // namespace rondo::tools
