#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/fabric_request.hpp"
#include "launch/placement.hpp"
#include "launch/supervisor.hpp"

namespace rondo::tools {

/// A command to run as every rank of a job on this node.
struct Job {
  std::vector<std::string> command = {};
  Placement placement = {};
  FabricRequest fabric = {};
  std::filesystem::path flight_record = {};  ///< a folder; empty: not written when the job fails
  int output = -1;     ///< becomes the ranks' standard output; -1: they share ours
  bool quiet = false;  ///< where the ranks run is not printed
};

/// How a job ended.
struct JobEnd {
  int status = 0;      ///< as launch(job) returns it
  int end_signal = 0;  ///< the first of SIGINT, SIGTERM, SIGHUP that this process got; 0: none
};

/// Starts the ranks as direct children, prints where each one runs, and waits for them. Ranks that
/// are to count as several nodes meet over loopback instead of in shared memory.
///
/// Returns the exit status of the first rank that failed (128 + n when signal n ended it), or 0.
/// When one fails, the others have 5 s to end by themselves. They cannot outlive this process.
/// SIGUSR2 makes it write the ranks' flight records. Only rank 0 reads the standard input. Throws
/// UsageError when the fabric makes no sense.
[[nodiscard]] int launch(const Job& job);

/// The same for one who starts several jobs in turn, and holds the signals all the time.
[[nodiscard]] JobEnd launch(const Job& job, const HeldSignals& signals);

}  // namespace rondo::tools
