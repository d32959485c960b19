#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "command.hpp"
#include "launch/environment.hpp"
#include "launch/placement.hpp"
#include "launch/supervisor.hpp"

namespace rondo::tools {

/// How a user wants the ranks of a job to be started.
struct LaunchRequest {
  PlacementRequest placement = {};
  FabricRequest fabric = {};
  std::filesystem::path flight_record = {};  ///< a folder; empty: left to the command
};

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
/// are to count as several nodes are connected over loopback instead of by shared memory.
///
/// Returns the exit status of the first rank that failed (128 + n when signal n ended it), or 0.
/// When one fails, the others have 5 s to end by themselves. They cannot outlive this process.
/// SIGUSR2 makes it write the ranks' flight records. Only rank 0 reads the standard input. Throws
/// UsageError when the fabric makes no sense.
[[nodiscard]] int launch(const Job& job);

/// The same for one who starts several jobs in turn, and holds the signals all the time.
[[nodiscard]] JobEnd launch(const Job& job, const HeldSignals& signals);

/// The command that starts this program with `arguments`.
[[nodiscard]] std::vector<std::string> own_command(const std::vector<std::string>& arguments);

/// Starts this program once more, with the same command line, as every rank of a job: for commands
/// that find by is_rank() which of the two they are. Returns what launch() does.
[[nodiscard]] int launch_again(const CommandLine& line, const Placement& placement,
                               const LaunchRequest& request);

}  // namespace rondo::tools
