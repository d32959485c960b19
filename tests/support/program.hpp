#pragma once

// Starts processes for tests: child processes of any kind, and programs whose output is caught.

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace rondo::test {

/// A direct child of the test. It is killed at the end if it still runs.
class Child {
 public:
  explicit Child(pid_t pid) noexcept : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void send(int signal) const;
  /// It has ended, and wait() would return at once.
  [[nodiscard]] bool has_ended() const;
  /// Its exit status, or 128 + n when signal n ended it; -1 when that was asked before.
  int wait();

 private:
  pid_t pid_;
};

/// The status and the output of a program that has ended.
struct Ended {
  int status = 0;  ///< as Child::wait() gives it
  std::string out = {};
  std::string err = {};
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// Each of them makes libgomp bind the first thread of a process.
inline const Environment openmp_bindings = {
    {"OMP_PROC_BIND", "close"}, {"OMP_PLACES", "cores"}, {"GOMP_CPU_AFFINITY", "0"}};

/// A running program. Its standard input is `input`; its output goes to files in memory, so nobody
/// must read for it to go on.
class Program {
 public:
  /// Looks for `command` in PATH; `environment` is added to that of the test.
  explicit Program(std::vector<std::string> command, const Environment& environment = {},
                   const std::string& input = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }
  void send(int signal) const { child_.send(signal); }
  [[nodiscard]] bool has_ended() const { return child_.has_ended(); }
  /// Its standard output so far; returns once it contains `text`, or when the program has ended.
  std::string output_until(const std::string& text) const;
  /// The same of its standard error.
  std::string errors_until(const std::string& text) const;
  /// It has a handler for `signal`.
  [[nodiscard]] bool handles(int signal) const;
  /// Its direct children at the moment.
  [[nodiscard]] std::vector<pid_t> children() const;
  Ended wait();

 private:
  [[nodiscard]] std::string text_until(int file, const std::string& text) const;

  int in_;
  int out_;
  int err_;
  Child child_;
};

/// The variable's value; throws when it is not set.
[[nodiscard]] std::string variable(const char* name);

/// The built `rondo`, and the command that starts it with `arguments`.
[[nodiscard]] std::string rondo_path();
[[nodiscard]] std::vector<std::string> rondo_command(const std::vector<std::string>& arguments);

/// Runs `rondo` with `arguments` until it ends.
Ended rondo(const std::vector<std::string>& arguments, const Environment& environment = {},
            const std::string& input = {});

/// The same behind redirections of a shell, as in "2>/dev/full" or ">&-".
Ended rondo_redirected(const std::string& redirections, const std::vector<std::string>& arguments);

/// The lines of `text`, without their ends.
[[nodiscard]] std::vector<std::string> lines(const std::string& text);

}  // namespace rondo::test
