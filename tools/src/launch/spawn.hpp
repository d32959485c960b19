#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace rondo::tools {

/// From now on a write beyond the limit of file sizes (ulimit -f) is an error (EFBIG), which can be
/// said, and does not end this process by SIGXFSZ. Processes of start() get the signal as before.
void keep_running_beyond_file_size();

/// The command could not be executed; what() names it and says why.
class ExecuteError : public std::system_error {
 public:
  using std::system_error::system_error;
};

/// As a shell would end: 127, or 126.
[[nodiscard]] int exit_status_of(const ExecuteError& error);

/// One process to start.
struct Spawn {
  std::vector<std::string> command = {};      ///< looked for in PATH
  std::vector<std::string> environment = {};  ///< "NAME=value"
  std::vector<int> cpus = {};                 ///< empty: not bound
  std::vector<int> descriptors = {};          ///< stay open, under the same numbers
  bool keeps_stdin = true;                    ///< else it reads /dev/null
  int input = -1;                             ///< becomes its standard input; -1: as above
  int output = -1;                            ///< becomes its standard output; -1: ours
  int errors = -1;                            ///< becomes its standard error; -1: ours
  bool own_group = false;                     ///< the terminal's signals do not reach it
  sigset_t signal_mask = {};                  ///< what it starts with
  std::optional<rlimit> open_files = {};      ///< its limit of them; nothing: ours
};

/// Starts a direct child and returns its process id once it executes the command. The kernel kills
/// the child when the calling thread ends. Throws ExecuteError.
[[nodiscard]] pid_t start(const Spawn& spawn);

/// Waits until `child` has ended, not beyond `until`. Has it? It is still to be waited for.
[[nodiscard]] bool ends_by(pid_t child, std::chrono::steady_clock::time_point until);

}  // namespace rondo::tools
