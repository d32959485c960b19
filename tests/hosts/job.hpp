#pragma once

// Jobs whose ranks run on the hosts that tests/support/hosts has made.

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/program.hpp"

namespace rondo::test {

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

  /// Sets a variable for the ranks that are started from now on.
  void set(const std::string& name, const std::string& value);

  /// Starts all ranks with this command.
  void start(const std::vector<std::string>& command);
  void start_rank(int rank, const std::vector<std::string>& command);

  void kill(int rank) const;

  /// Returns when the rank has written `text`, or has ended; what it has written to its
  /// standard output by then.
  [[nodiscard]] std::string output_until(int rank, const std::string& text) const;

  Ended wait(int rank);

  /// The address and the name of the job, as RONDO_COORDINATOR has them.
  [[nodiscard]] const std::string& coordinator() const noexcept { return coordinator_; }
  void set_coordinator(std::string coordinator) { coordinator_ = std::move(coordinator); }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(hosts_.size()); }

 private:
  [[nodiscard]] Program& at(int rank) const { return *ranks_.at(static_cast<std::size_t>(rank)); }

  std::vector<int> hosts_;
  std::vector<std::unique_ptr<Program>> ranks_;
  std::string coordinator_;
  Environment environment_;
};

/// The program of tests/rank.
[[nodiscard]] std::string rank_program();

/// A test that needs hosts; it is left out, and says why, where there can be none.
class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* reason = std::getenv("RONDO_HOSTS_MISSING");
    if (reason != nullptr) GTEST_SKIP() << "left out: " << reason;
  }
};

}  // namespace rondo::test
