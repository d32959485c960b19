#pragma once

// Ranks for tests: processes, forked from the test, that meet as those of `rondo run` do.

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::test {

/// Processes that are the ranks of one job. Whoever still runs at the end is killed.
class Processes {
 public:
  /// Forks `ranks` processes that call body(World&); a failed expectation or an exception makes
  /// one end with status 1. Must be called while the test has one thread.
  template <typename Body>
  Processes(int ranks, const transport::WorldOptions& options, Body body) {
    static int jobs = 0;
    std::array<char, 64> coordinator{};
    std::snprintf(coordinator.data(), coordinator.size(), "local:%016x%016x",
                  static_cast<unsigned>(::getpid()), static_cast<unsigned>(++jobs));
    std::fflush(nullptr);
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) run_rank(coordinator.data(), rank, ranks, options, body);
      pids_.push_back(pid);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] > 0) ::kill(pids_[rank], SIGKILL);
      (void)wait(static_cast<int>(rank));
    }
  }

  void signal(int rank, int number) const { ::kill(pids_[index(rank)], number); }

  /// Waits for a rank; its exit status, or 128 + the signal that ended it.
  int wait(int rank) {
    pid_t& pid = pids_[index(rank)];
    if (pid <= 0) return -1;
    int status = 0;
    ::waitpid(pid, &status, 0);
    pid = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  template <typename Body>
  [[noreturn]] static void run_rank(const char* coordinator, int rank, int ranks,
                                    const transport::WorldOptions& options, Body& body) {
    ::setenv("RONDO_COORDINATOR", coordinator, 1);
    ::setenv("RONDO_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("RONDO_SIZE", std::to_string(ranks).c_str(), 1);
    int status = 0;
    try {
      transport::World world = transport::World::attach(options);
      body(world);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      status = 1;
    }
    // Not exit(): the test's own objects are the parent's to destroy.
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : status);
  }

  std::vector<pid_t> pids_;
};

/// Every rank of `ranks` processes returns from body(World&) without a failure.
template <typename Body>
void expect_success(int ranks, Body body) {
  Processes processes(ranks, quick_options(), body);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

}  // namespace rondo::test
