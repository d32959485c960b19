// Waits for ranks, and decides which of several failures is the cause.
//
// The supervisor takes one signal at a time out of a queue (sigtimedwait): there are no handlers,
// so nothing runs at an unexpected moment, and it sleeps while nothing happens. When one rank has
// failed, the others pass through the stages below: they may end by themselves, then get SIGTERM,
// then SIGKILL. The process that runs the ranks of another host is killed itself only after that.

#include "launch/supervisor.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "failure.hpp"
#include "launch/spawn.hpp"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The terminal sends its signals to the whole foreground group, so the ranks have them already.
bool from_terminal(const siginfo_t& info) { return info.si_code == SI_KERNEL; }

timespec to_timespec(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {seconds.count(), (time - seconds).count()};
}

// The lower, the closer to the cause.
int distance_from_cause(const RankEnd& end) noexcept {
  // A rank that ended by itself is closer to the cause than one that only lost a peer, and that is
  // closer than one that was told to end.
  if (end.ended_by_us) return 2;
  return end.exit_status() == exit_peer_lost ? 1 : 0;
}

}  // namespace

// ssh may have made standard error one that does not wait.
void tell(const std::string& what) { std::fputs(("rondo: " + what + "\n").c_str(), stderr); }

int RankEnd::exit_status() const noexcept {
  return WIFSIGNALED(wait_status) ? signal_base + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string RankEnd::describe() const {
  if (!host.empty()) {
    return fmt::format("the job on host {} ended with status {}", host, exit_status());
  }
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = sigdescr_np(signal);
    return fmt::format("rank {} (pid {}) was ended by signal {} ({})", rank, pid, signal,
                       name != nullptr ? name : "unknown");
  }
  return fmt::format("rank {} (pid {}) ended with status {}", rank, pid, exit_status());
}

// Only a cause that is closer than the one before replaces it; among equals the first counts.
bool Outcome::add(const RankEnd& end) {
  if (!end.failed()) return false;
  if (cause_ && distance_from_cause(end) >= distance_from_cause(*cause_)) return false;
  cause_ = end;
  return true;
}

int Outcome::exit_status() const noexcept { return cause_ ? cause_->exit_status() : exit_done; }

namespace {

// As nohup does with SIGHUP, and a shell with SIGINT for what it starts in the background. The
// ranks ignore it, too.
bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

HeldSignals::HeldSignals() {
  // A parent that ignores SIGCHLD would make the kernel discard how the ranks ended.
  std::signal(SIGCHLD, SIG_DFL);
  sigemptyset(&held_);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    // A held signal would be queued, and taken, although it is ignored.
    if (!is_ignored(signal)) sigaddset(&held_, signal);
  }
  for (const int signal : {abandoned(), killed()}) sigaddset(&held_, signal);
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

// One signal at a time. A SIGCHLD may stand for several ranks, and one may have come before the
// signals were held, so every round collects all ranks that have ended.
Outcome Supervisor::wait() {
  reap();
  while (!running_.empty()) {
    siginfo_t info{};
    const auto left = time_left();
    int signal = 0;
    if (left) {
      // A limit only while ranks are expected to end.
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
  kill_ranks();
  for (const Rank& rank : running_) {
    if (rank.deliver) {
      static_cast<void>(ends_by(rank.pid, stage_ends_));
      ::kill(-rank.pid, SIGKILL);
    }
    waitpid(rank.pid, nullptr, 0);
  }
  running_.clear();
}

// SIGUSR1 and whatever else is held goes to the ranks as it is.
void Supervisor::handle(const siginfo_t& info) {
  if (info.si_signo == HeldSignals::abandoned()) return end_abandoned();
  if (info.si_signo == HeldSignals::killed()) return kill_ranks();
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

namespace {

// One request may come twice: `timeout` sends its signal to its child and then to the child's
// group, and a shell that hangs up is followed by the kernel. So a repeated signal counts only
// after this time, but a repeated Ctrl-C at once, because only a person sends that.
constexpr auto repeat_time = std::chrono::seconds(2);

bool is_pressed(const siginfo_t& info) { return info.si_signo == SIGINT && from_terminal(info); }

}  // namespace

// The first request is passed on, and the ranks may end in their own way; a second one kills.
void Supervisor::forward_end(const siginfo_t& info) {
  if (end_signal_ != 0) {
    if (!is_pressed(info) && Clock::now() - end_asked_ < repeat_time) return;
    if (stage_ == Stage::cut_off) return;
    if (stage_ != Stage::killed) stage_ = Stage::terminating;
    escalate();
    return;
  }
  end_signal_ = info.si_signo;
  end_asked_ = Clock::now();
  // A terminal that is gone tells the leader of its session alone; Ctrl-C reaches all.
  send(info.si_signo, from_terminal(info) && info.si_signo != SIGHUP);
}

// Whatever was asked for before: the ranks have their time from now on.
void Supervisor::end_abandoned() {
  send(SIGTERM);
  stage_ = Stage::terminating;
  stage_ends_ = Clock::now() + grace_.by_themselves;
}

void Supervisor::kill_ranks() {
  send(SIGKILL);
  stage_ = Stage::killed;
  stage_ends_ = Clock::now() + grace_.after_kill;
}

// They have not passed SIGKILL on: the ranks of these hosts end when their input does.
void Supervisor::cut_off_hosts() {
  for (const Rank& rank : running_) {
    if (rank.deliver) ::kill(-rank.pid, SIGKILL);
  }
  stage_ = Stage::cut_off;
}

// Ctrl-Z stops the ranks with the launcher, and fg continues them.
void Supervisor::stop_and_continue(const siginfo_t& info) {
  send(SIGTSTP, from_terminal(info));
  // The launcher stops itself after its ranks, as a shell expects of a job.
  const Clock::time_point stopped = Clock::now();
  raise(SIGSTOP);                         // returns when someone continues us
  stage_ends_ += Clock::now() - stopped;  // in which the ranks could not end
  send(SIGCONT);
}

// Collects ranks that have ended; the first that failed starts the time limit of all others.
void Supervisor::reap() {
  for (auto rank = running_.begin(); rank != running_.end();) {
    int status = 0;
    if (waitpid(rank->pid, &status, WNOHANG) != rank->pid) {
      ++rank;
      continue;
    }
    // A rank's end after our own signal is not the cause.
    const bool forced = stage_ != Stage::running && stage_ != Stage::grace;
    const RankEnd end{rank->rank, rank->pid, status, forced, rank->host};
    // Said at once: the user sees the cause while the other ranks still end.
    if (outcome_.add(end)) tell(end.describe());
    // Processes that the rank has started there may hold the output open.
    if (rank->deliver && stage_ == Stage::killed) ::kill(-rank->pid, SIGKILL);
    rank = running_.erase(rank);
    if (end.failed()) begin_grace();
  }
}

// Once: ranks that fail later do not prolong it.
void Supervisor::begin_grace() {
  if (stage_ != Stage::running) return;
  stage_ = Stage::grace;
  stage_ends_ = Clock::now() + grace_.by_themselves;
}

// Called when the time of a stage is over.
void Supervisor::escalate() {
  if (stage_ == Stage::killed) return cut_off_hosts();
  const bool kill = stage_ == Stage::terminating;
  for (const Rank& rank : running_) {
    tell(fmt::format("{} has not ended by itself: sending {}", rank.name(),
                     kill ? "SIGKILL" : "SIGTERM"));
  }
  if (kill) return kill_ranks();
  send(SIGTERM);
  stage_ = Stage::terminating;
  stage_ends_ = Clock::now() + grace_.after_term;
}

std::string Supervisor::Rank::name() const {
  return host.empty() ? fmt::format("rank {} (pid {})", rank, pid) : "the job on host " + host;
}

// `terminal_has`: it has sent the signal to its foreground group, in which ranks are, and those who
// run the ranks of a host are not.
void Supervisor::send(int signal, bool terminal_has) const {
  for (const Rank& rank : running_) {
    if (rank.deliver) {
      rank.deliver(signal);
    } else if (!terminal_has) {
      ::kill(rank.pid, signal);
    }
  }
}

// Nothing: there is no limit, because nothing has failed or all that can be was killed.
std::optional<std::chrono::nanoseconds> Supervisor::time_left() const {
  if (stage_ == Stage::running || stage_ == Stage::cut_off) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(stage_ends_ - Clock::now(),
                                            std::chrono::nanoseconds(0));
}

}  // namespace rondo::tools
