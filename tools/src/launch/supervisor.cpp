#include "launch/supervisor.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The terminal sends its signals to the whole foreground group, so the ranks have them already.
bool from_terminal(const siginfo_t& info) { return info.si_code == SI_KERNEL; }

timespec to_timespec(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {seconds.count(), (time - seconds).count()};
}

}  // namespace

HeldSignals::HeldSignals() {
  // A parent that ignores SIGCHLD would make the kernel discard how the ranks ended.
  std::signal(SIGCHLD, SIG_DFL);
  sigemptyset(&held_);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    sigaddset(&held_, signal);
  }
  sigprocmask(SIG_BLOCK, &held_, &previous_);
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &previous_, nullptr); }

int HeldSignals::take_end_signal() {
  sigset_t ends{};
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  const timespec at_once{};
  return std::max(sigtimedwait(&ends, nullptr, &at_once), 0);
}

Outcome Supervisor::wait() {
  reap();
  while (!running_.empty()) {
    siginfo_t info{};
    const auto left = time_left();
    int signal = 0;
    if (left) {
      const timespec limit = to_timespec(*left);
      signal = sigtimedwait(&signals_.held(), &info, &limit);
    } else {
      signal = sigwaitinfo(&signals_.held(), &info);
    }
    if (signal > 0) {
      handle(info);
    } else if (errno == EAGAIN) {
      escalate();
    }
  }
  return outcome_;
}

void Supervisor::kill_all() {
  send(SIGKILL);
  for (const Rank& rank : running_) waitpid(rank.pid, nullptr, 0);
  running_.clear();
}

void Supervisor::handle(const siginfo_t& info) {
  switch (info.si_signo) {
    case SIGCHLD:
      reap();
      break;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
      forward_end(info);
      break;
    case SIGTSTP:
      stop_and_continue(info);
      break;
    case SIGCONT:
      send(SIGCONT);
      break;
    case SIGUSR2:
      on_request_();
      break;
    default:
      send(info.si_signo);
  }
}

void Supervisor::forward_end(const siginfo_t& info) {
  if (end_signal_ != 0) {
    stage_ = Stage::terminating;
    escalate();
    return;
  }
  end_signal_ = info.si_signo;
  if (!from_terminal(info)) send(info.si_signo);
}

void Supervisor::stop_and_continue(const siginfo_t& info) {
  if (!from_terminal(info)) send(SIGTSTP);
  raise(SIGSTOP);  // returns when someone continues us
  send(SIGCONT);
}

void Supervisor::reap() {
  for (auto rank = running_.begin(); rank != running_.end();) {
    int status = 0;
    if (waitpid(rank->pid, &status, WNOHANG) != rank->pid) {
      ++rank;
      continue;
    }
    const bool forced = stage_ == Stage::terminating || stage_ == Stage::killed;
    const RankEnd end{rank->rank, rank->pid, status, forced};
    if (outcome_.add(end)) fmt::print(stderr, "rondo: {}\n", end.describe());
    rank = running_.erase(rank);
    if (end.failed()) begin_grace();
  }
}

void Supervisor::begin_grace() {
  if (stage_ != Stage::running) return;
  stage_ = Stage::grace;
  stage_ends_ = Clock::now() + grace_.by_themselves;
}

void Supervisor::escalate() {
  const bool kill = stage_ == Stage::terminating;
  for (const Rank& rank : running_) {
    fmt::print(stderr, "rondo: rank {} (pid {}) has not ended by itself: sending {}\n", rank.rank,
               rank.pid, kill ? "SIGKILL" : "SIGTERM");
  }
  send(kill ? SIGKILL : SIGTERM);
  stage_ = kill ? Stage::killed : Stage::terminating;
  stage_ends_ = Clock::now() + grace_.after_term;
}

void Supervisor::send(int signal) const {
  for (const Rank& rank : running_) ::kill(rank.pid, signal);
}

std::optional<std::chrono::nanoseconds> Supervisor::time_left() const {
  if (stage_ == Stage::running || stage_ == Stage::killed) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(stage_ends_ - Clock::now(),
                                            std::chrono::nanoseconds(0));
}

}  // namespace rondo::tools
