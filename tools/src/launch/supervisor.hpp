#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rondo::tools {

/// Writes "rondo: WHAT" to stderr while ranks run: what that does not take is lost, and no more.
void tell(const std::string& what);

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  int pid = 0;
  int wait_status = 0;       ///< as waitpid() gives it
  bool ended_by_us = false;  ///< the launcher had begun to end the ranks by force
  std::string host = {};     ///< not a rank: all ranks of this host

  [[nodiscard]] bool failed() const noexcept { return wait_status != 0; }
  /// 128 + n for signal n.
  [[nodiscard]] int exit_status() const noexcept;
  /// "rank 1 (pid 123) was ended by signal 9 (Killed)"
  [[nodiscard]] std::string describe() const;
};

/// Finds the first cause among the ends of all ranks.
///
/// Status 4 ("a peer was lost") and ranks that the launcher ended itself are consequences as long
/// as another rank failed in any other way; among equals the first counts.
class Outcome {
 public:
  /// In the order in which the ranks ended. Is `end` the first cause, as far as is known now?
  bool add(const RankEnd& end);

  /// The first cause so far; nothing while no rank has failed.
  [[nodiscard]] const std::optional<RankEnd>& cause() const noexcept { return cause_; }

  /// The launcher's own exit status.
  [[nodiscard]] int exit_status() const noexcept;

 private:
  std::optional<RankEnd> cause_ = {};
};

/// While it lives, the signals that a launcher handles wait in a queue instead of acting on it.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();

  [[nodiscard]] const sigset_t& held() const noexcept { return held_; }
  /// The mask from before, for the children.
  [[nodiscard]] const sigset_t& previous() const noexcept { return previous_; }
  /// SIGINT, SIGTERM or SIGHUP when one waits, which it then does no longer; else 0.
  [[nodiscard]] static int take_end_signal();
  /// By which the part of a job that runs on one host tells itself that the launcher is gone.
  [[nodiscard]] static int abandoned() noexcept { return SIGRTMIN; }
  /// The same where the launcher wants the ranks killed.
  [[nodiscard]] static int killed() noexcept { return SIGRTMIN + 1; }

 private:
  sigset_t held_ = {};
  sigset_t previous_ = {};
};

/// How long ranks that outlive a failed one may take to end.
struct GracePeriods {
  std::chrono::milliseconds by_themselves{5'000};  ///< then SIGTERM
  std::chrono::milliseconds after_term{2'000};     ///< then SIGKILL
  std::chrono::milliseconds after_kill{1'000};     ///< then what has started them on other hosts
};

/// Waits for the ranks, passes signals on to them, and ends them all when one has failed.
///
/// - SIGINT, SIGTERM, SIGHUP and SIGUSR1 are forwarded; SIGUSR2 calls `on_request`; a second
/// SIGINT, SIGTERM or SIGHUP kills, if it comes 2 s after the first or is a second Ctrl-C. Signals
/// of the terminal reach the ranks by themselves.
/// - HeldSignals::abandoned() sends SIGTERM to the ranks, and kills them 5 s later;
/// HeldSignals::killed() kills them at once.
/// - SIGTSTP stops the ranks and the launcher; SIGCONT continues both.
/// - Sleeps between signals: it takes no CPU from the ranks.
class Supervisor {
 public:
  Supervisor(const HeldSignals& signals, GracePeriods grace, std::function<void()> on_request)
      : signals_(signals), grace_(grace), on_request_(std::move(on_request)) {}

  void add(int rank, pid_t pid) { running_.push_back({rank, pid}); }

  /// Adds a process, the first of its group, that runs the ranks of `host`, whom signals reach by
  /// `deliver` alone, those of the terminal, too. When they are killed, so is the group, at the
  /// latest after a second: the process may have to pass SIGKILL on before it can end.
  void add_host(std::string host, pid_t pid, std::function<void(int signal)> deliver) {
    running_.push_back({0, pid, std::move(host), std::move(deliver)});
  }

  /// Returns when all ranks have ended. Reports on stderr what went wrong.
  [[nodiscard]] Outcome wait();

  /// The first of SIGINT, SIGTERM and SIGHUP that came while wait() waited; 0: none.
  [[nodiscard]] int end_signal() const noexcept { return end_signal_; }

  /// Kills the ranks that run and waits for them; for a job that cannot start.
  void kill_all();

 private:
  struct Rank {
    int rank;
    pid_t pid;
    std::string host = {};
    std::function<void(int signal)> deliver = {};  // empty: by the kernel

    [[nodiscard]] std::string name() const;
  };
  enum class Stage { running, grace, terminating, killed, cut_off };

  void handle(const siginfo_t& info);
  void forward_end(const siginfo_t& info);
  void end_abandoned();
  void kill_ranks();
  void cut_off_hosts();
  void stop_and_continue(const siginfo_t& info);
  void reap();
  void begin_grace();
  void escalate();
  void send(int signal, bool terminal_has = false) const;
  [[nodiscard]] std::optional<std::chrono::nanoseconds> time_left() const;

  const HeldSignals& signals_;
  GracePeriods grace_;
  std::function<void()> on_request_;
  std::vector<Rank> running_ = {};
  Outcome outcome_ = {};
  Stage stage_ = Stage::running;
  std::chrono::steady_clock::time_point stage_ends_ = {};
  int end_signal_ = 0;
  std::chrono::steady_clock::time_point end_asked_ = {};
};

}  // namespace rondo::tools
