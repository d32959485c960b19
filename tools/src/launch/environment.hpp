#pragma once

#include <string>
#include <vector>

namespace rondo::tools {

/// What a launcher tells a rank through its environment.
struct RankEnvironment {
  std::string coordinator = {};  ///< RONDO_COORDINATOR: where the ranks meet
  int rank = 0;                  ///< RONDO_RANK
  int size = 1;                  ///< RONDO_SIZE
  int threads = 1;               ///< RONDO_THREADS
};

/// Was this process started as a rank?
[[nodiscard]] bool is_rank();

/// RONDO_RANK as it stands in the environment; "0" when this process was not started as a rank.
[[nodiscard]] std::string rank_name();

/// RONDO_SIZE; 0 when this process was not started as a rank.
[[nodiscard]] int size_from_environment();

/// The threads that the launcher meant this rank to have; 0 when there was no launcher.
[[nodiscard]] int threads_from_environment();

/// A coordinator for ranks of one node: "local:" and 128 random bits.
[[nodiscard]] std::string make_local_coordinator();

/// This process' environment with the rank's variables, as "NAME=value". OMP_NUM_THREADS is set
/// unless the user has set it.
[[nodiscard]] std::vector<std::string> environment_of(const RankEnvironment& rank);

}  // namespace rondo::tools
