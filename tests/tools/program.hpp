#pragma once

// Starts programs, above all the built `rondo`, and catches what they say.

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace rondo::tools::test {

/// What a program left behind.
struct Ended {
  int status = 0;  ///< its exit status, or 128 + n when signal n ended it
  std::string out = {};
  std::string err = {};
};

/// A running program. Its standard input is /dev/null, or `input`.
class Program {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  /// The built `rondo` with `arguments`.
  explicit Program(const std::vector<std::string>& arguments, const Environment& environment = {},
                   const std::string& input = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();  ///< kills it if it still runs

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void send(int signal) const;
  /// Its standard output so far; returns once it contains `text`, or when the program has ended.
  std::string output_until(const std::string& text);
  /// The same of its standard error.
  std::string errors_until(const std::string& text);
  /// Its direct children at the moment.
  [[nodiscard]] std::vector<pid_t> children() const;
  Ended wait();

 private:
  std::string text_until(int file, const std::string& text) const;
  [[noreturn]] void become(const std::vector<std::string>& arguments,
                           const Environment& environment) const;

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
};

/// Program(...).wait()
Ended rondo(const std::vector<std::string>& arguments, const Program::Environment& environment = {},
            const std::string& input = {});

/// The path of the built program.
std::string rondo_path();

/// The lines of `text`, without their ends.
std::vector<std::string> lines(const std::string& text);

}  // namespace rondo::tools::test
