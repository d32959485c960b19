#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "files.hpp"
#include "launch/environment.hpp"
#include "launch/supervisor.hpp"
#include "machine.hpp"

namespace rondo::transport {
class World;
}

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
  /// Says of the job's exit status whether the ranks have refused to begin, and said why: then no
  /// flight record is written. Empty: they never do.
  std::function<bool(int status)> has_refused = {};

  // For a job on several hosts, of which these are the ranks of one.
  std::string host = {};  ///< this one's name
  int first = 0;          ///< the first of these ranks
  int size = 0;           ///< of the whole job; 0: these are all
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

struct Bootstrap;

/// The same for ranks that find each other by `bootstrap`, in a job on several hosts.
[[nodiscard]] JobEnd launch(const Job& job, const HeldSignals& signals, Bootstrap bootstrap);

/// The kernel's name for this program's file.
inline constexpr const char* own_link = "/proc/self/exe";

/// Where this program lies, or lay.
[[nodiscard]] std::string own_path(const std::filesystem::path& link = own_link);

/// Throws UsageError if the file of this program has been replaced since it began, as by an
/// installation.
void expect_own_program(const std::filesystem::path& link = own_link);

/// The command that starts this program with `arguments`. Throws as expect_own_program() does.
[[nodiscard]] std::vector<std::string> own_command(const std::vector<std::string>& arguments);

/// Starts this program once more, with the same command line, as every rank of a job: for commands
/// that find by is_rank() which of the two they are. Returns what launch() does.
[[nodiscard]] int launch_again(const CommandLine& line, const Placement& placement,
                               const LaunchRequest& request);

/// The same for a command that needs no more: in a rank returns what `as_rank` does, else starts
/// the ranks, `ranks` of them where -n does not say how many. Throws what refuse_other_job() does.
[[nodiscard]] int launch_or_be_rank(const CommandLine& line, LaunchRequest request, int ranks,
                                    const std::function<int()>& as_rank);

/// Throws UsageError in a process that is a rank, for a command that starts ranks of its own.
void refuse_to_be_rank(std::string_view command);

/// The facts that the ranks of a job need to find each other, as the launcher prepares them.
struct Bootstrap {
  std::string coordinator = {};  ///< RONDO_COORDINATOR
  Descriptor listener = {};      ///< the socket on which rank 0 listens; none on one node
  Descriptor secret = {};        ///< a file in memory that all ranks inherit; none on one node
};

inline constexpr std::size_t job_bytes = 16;
inline constexpr std::size_t secret_bytes = 32;

/// Two hexadecimal digits for each of `bytes` random bytes, from the kernel.
[[nodiscard]] std::string random_digits(std::size_t bytes);

/// A file in memory that holds the secret. Throws std::system_error.
[[nodiscard]] Descriptor keep_secret(const std::string& secret);

/// For ranks of one node: "local:" and 128 random bits.
[[nodiscard]] Bootstrap bootstrap_on_this_node();

/// For ranks that count as ranks of several nodes: "tcp:127.0.0.1:PORT/" and 128 random bits, a
/// socket that is bound to the port already, and 256 random bits that prove who belongs to the job.
/// Throws std::system_error.
[[nodiscard]] Bootstrap bootstrap_over_loopback();

/// As above without a secret, on a port of all addresses unless `host` is this machine's loopback:
/// for ranks that have connected to `host` before.
[[nodiscard]] Bootstrap bootstrap_at(const std::string& host);

/// Lets the ranks of a job connect once more, for a World with other settings. The environment
/// names one bootstrap; this makes another of the same kind, at another port and with another job
/// id.
class NextBootstrap {
 public:
  /// Collective over `world`, which is to end before prepare().
  explicit NextBootstrap(transport::World& world);

  /// Changes this process' environment: the next World::attach() uses the new bootstrap.
  void prepare();

 private:
  std::string coordinator_ = {};  // empty: there is no launcher, and one rank
  Descriptor listener_ = {};
};

}  // namespace rondo::tools
