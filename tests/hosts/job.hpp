#pragma once

// Jobs whose ranks run on the hosts that tests/support/hosts has made.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace rondo::test {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// What a program left behind.
struct Ended {
  int status = 0;           ///< its exit status, or 128 + n when signal n ended it
  std::string output = {};  ///< of both streams
};

/// Seconds of the monotonic clock, which all hosts of a test share.
[[nodiscard]] double now();

/// Does to the hosts what `words` say, for example {"cut", "2"}; throws when that fails.
void hosts(const std::vector<std::string>& words);

/// One job: a program on several hosts, as a cluster's launcher would start it.
class Job {
 public:
  /// Rank r will run on host `hosts[r]`, which counts from 1. Its store is
  /// at 10.88.`wire`.`hosts[0]`.
  explicit Job(std::vector<int> hosts, int wire = 0);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();  ///< kills whoever still runs

  /// Sets a variable for the ranks that are started from now on.
  void set(const std::string& name, const std::string& value);

  /// Starts all ranks with this command.
  void start(const std::vector<std::string>& command);
  void start_rank(int rank, const std::vector<std::string>& command);

  void kill(int rank) const;

  /// Returns when the rank has written `text`, or has ended; what it has written by then.
  [[nodiscard]] std::string output_until(int rank, const std::string& text) const;

  Ended wait(int rank);

  /// The address and the name of the job, as RONDO_COORDINATOR has them.
  [[nodiscard]] const std::string& coordinator() const noexcept { return coordinator_; }
  void set_coordinator(std::string coordinator) { coordinator_ = std::move(coordinator); }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(hosts_.size()); }

 private:
  struct Rank {
    pid_t pid = -1;
    int output = -1;
  };
  [[nodiscard]] Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const Rank& at(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }

  std::vector<int> hosts_;
  std::vector<Rank> ranks_;
  std::string coordinator_;
  Environment environment_;
};

/// The program of tests/rank.
[[nodiscard]] std::string rank_program();

/// The built `rondo`.
[[nodiscard]] std::string rondo_program();

}  // namespace rondo::test
