#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rondo::tools {

/// The exit status of the program. A rank ended by signal n gives signal_base + n.
enum ExitStatus : int {
  exit_done = 0,
  exit_failed = 1,      ///< a result is wrong, or something unforeseen
  exit_usage = 2,       ///< configuration or command line
  exit_data = 3,        ///< a file is missing or broken, or cannot be written
  exit_peer_lost = 4,   ///< a peer was lost or a deadline passed
  exit_not_finite = 5,  ///< the loss became NaN or Inf
  exit_stopped = 75,    ///< a run was asked to stop, and has left a checkpoint (EX_TEMPFAIL)
  exit_cannot_execute = 126,
  exit_not_found = 127,
  signal_base = 128,
};

/// Where a thread or a process cannot be started for a lack of them (EAGAIN).
inline constexpr const char* beyond_limits =
    "beyond the limit of processes (ulimit -u, or pids.max of the control group)";

/// The user's request cannot be carried out; what() is one line that says what to do instead. Ends
/// the program with exit_usage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The meaning of an exception to the user of a command.
struct Failure {
  int status = exit_failed;   ///< see ExitStatus
  bool on_all_ranks = false;  ///< every rank of the job fails with it alike
  std::string text = {};      ///< one line
};

[[nodiscard]] Failure describe(const std::exception_ptr& exception);

/// Which ranks say an error that all ranks of a job should have alike. Rank 0 always does.
enum class Speaker {
  every_rank,     ///< of a command that joins no others: which of them fail is not known
  first_of_host,  ///< before the ranks have met: files may differ from host to host
  rank_0,         ///< once they have
};

/// For all later report() of this process; every_rank before the first call.
void let_speak(Speaker which);

/// Writes one line to stderr, with the rank in front where it says more; what all ranks have in
/// common is left to those that let_speak() has named. Returns the exit status.
int report(const std::exception_ptr& exception);

/// One line to stderr for an image that is left out. From any thread.
void tell_of_broken_image(const std::string& problem);

/// One line to stderr for an error that this rank, on this host, says itself.
void print_of_rank(std::string_view rank, std::string_view host, std::string_view text);

}  // namespace rondo::tools
