#pragma once

// A process of another user, for tests of who is trusted.

#include <grp.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

namespace rondo::test {

/// Forks a process that becomes the user `id` and ends with the status that body() returns, or with
/// `failed`. Whoever still runs at the end is killed. Needs root; and the test should have one
/// thread when it makes one.
class OtherUser {
 public:
  static constexpr uid_t id = 65534;
  static constexpr int failed = 99;

  [[nodiscard]] static bool possible() { return ::geteuid() == 0; }

  template <typename Body>
  explicit OtherUser(Body body) : pid_(::fork()) {
    if (pid_ != 0) return;
    int status = failed;
    try {
      if (::setgroups(0, nullptr) == 0 && ::setresgid(id, id, id) == 0 &&
          ::setresuid(id, id, id) == 0) {
        status = body();
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "another user: %s\n", error.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  ~OtherUser() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait();
  }

  /// Its exit status, or 128 + the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
};

}  // namespace rondo::test
