#pragma once

// Ranks for tests: processes, forked from the test, that meet as those of `rondo run` do.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

#include "support/program.hpp"
#include "support/world.hpp"

namespace rondo::test {

/// Where the ranks of a job meet: see RONDO_COORDINATOR and RONDO_LISTENER.
struct MeetingPlace {
  std::string coordinator;
  int listener = -1;
};

/// A job that no other test of this process has.
inline std::string new_job() {
  static int jobs = 0;
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016x%016x", static_cast<unsigned>(::getpid()),
                static_cast<unsigned>(++jobs));
  return text.data();
}

inline MeetingPlace meet_locally() { return {.coordinator = "local:" + new_job()}; }

/// At the store of rank 0, on a free port of loopback.
inline MeetingPlace meet_over_tcp() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener, SOMAXCONN), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return {
      .coordinator = "tcp:127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/" + new_job(),
      .listener = listener};
}

/// Processes that are the ranks of one job. Whoever still runs at the end is killed.
class Processes {
 public:
  /// Forks `ranks` processes that call body(World&); a failed expectation or an exception makes
  /// one end with status 1. Must be called while the test has one thread.
  template <typename Body>
  Processes(int ranks, const transport::WorldOptions& options, Body body)
      : Processes(ranks, meet_locally(), [&options, &body] {
          transport::World world = transport::World::attach(options);
          body(world);
        }) {}

  /// The same with body(), which is to attach() by itself.
  template <typename Body>
  Processes(int ranks, const MeetingPlace& place, Body body) {
    std::fflush(nullptr);
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) run_rank(place, rank, ranks, body);
      ranks_.emplace_back(pid);
    }
    // A port of a rank 0 that is gone must refuse at once.
    if (place.listener >= 0) ::close(place.listener);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(int rank, int number) const { ranks_[index(rank)].send(number); }

  /// Does wait() return at once?
  [[nodiscard]] bool has_ended(int rank) const { return ranks_[index(rank)].has_ended(); }

  /// Waits for a rank; its exit status, or 128 + the signal that ended it.
  int wait(int rank) { return ranks_[index(rank)].wait(); }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  template <typename Body>
  [[noreturn]] static void run_rank(const MeetingPlace& place, int rank, int ranks, Body& body) {
    ::setenv("RONDO_COORDINATOR", place.coordinator.c_str(), 1);
    ::setenv("RONDO_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("RONDO_SIZE", std::to_string(ranks).c_str(), 1);
    if (rank == 0 && place.listener >= 0) {
      ::setenv("RONDO_LISTENER", std::to_string(place.listener).c_str(), 1);
    } else if (place.listener >= 0) {
      ::close(place.listener);
    }
    int status = 0;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      status = 1;
    }
    // Not exit(): the test's own objects are the parent's to destroy.
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : status);
  }

  std::vector<Child> ranks_;
};

/// Every rank of `ranks` processes that meet at `place` returns from body() without a failure.
template <typename Body>
void expect_success(int ranks, const MeetingPlace& place, Body body) {
  Processes processes(ranks, place, body);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

/// Every rank of `ranks` processes returns from body(World&) without a failure.
template <typename Body>
void expect_success(int ranks, Body body) {
  Processes processes(ranks, quick_options(), body);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

}  // namespace rondo::test
