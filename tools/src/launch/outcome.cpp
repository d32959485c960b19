#include "launch/outcome.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

// The lower, the closer to the cause.
int distance_from_cause(const RankEnd& end) noexcept {
  if (end.ended_by_us) return 2;
  return end.exit_status() == exit_peer_lost ? 1 : 0;
}

}  // namespace

int RankEnd::exit_status() const noexcept {
  return WIFSIGNALED(wait_status) ? signal_base + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string RankEnd::describe() const {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = sigdescr_np(signal);
    return fmt::format("rank {} (pid {}) was ended by signal {} ({})", rank, pid, signal,
                       name != nullptr ? name : "unknown");
  }
  return fmt::format("rank {} (pid {}) ended with status {}", rank, pid, exit_status());
}

bool Outcome::add(const RankEnd& end) {
  if (!end.failed()) return false;
  if (cause_ && distance_from_cause(end) >= distance_from_cause(*cause_)) return false;
  cause_ = end;
  return true;
}

int Outcome::exit_status() const noexcept { return cause_ ? cause_->exit_status() : exit_done; }

}  // namespace rondo::tools
