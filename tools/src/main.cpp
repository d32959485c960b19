// The rondo program: reads the command line, runs the chosen subcommand, and turns an exception
// into one line on stderr and an exit status.
//
// Each subcommand adds itself (add_NAME in its own file), with its options and the function that
// runs it; the list below is all that this file knows of them.

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command.hpp"
#include "failure.hpp"
#include "launch/spawn.hpp"
#include "machine.hpp"
#include "say.hpp"

namespace rondo::tools {
namespace {

constexpr const char* output_is_lost = "cannot write to standard output";

// The arguments behind the first "--" of `rondo run` belong to the program that it starts, and
// those of `rondo complete` to a command line that is being typed; CLI11 never sees them.
CommandLine split(int argc, char** argv) {
  CommandLine line;
  bool behind = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    // Elsewhere "--" has its usual meaning.
    if (!behind && argument == "--" && !line.own.empty() &&
        (line.own.front() == "run" || line.own.front() == "complete")) {
      behind = true;
    } else {
      (behind ? line.behind_dashes : line.own).emplace_back(argument);
    }
  }
  return line;
}

// The command that a mistake is about.
const CLI::App* innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? &app : innermost(*chosen.front());
}

// "rondo bench allreduce"
std::string name_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : name_of(*app.get_parent()) + " " + app.get_name();
}

// One line that says what is wrong and where to look.
int report_misuse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help, --version
    std::ostringstream text;
    const int status = app.exit(error, text, text);
    fmt::print("{}", text.str());
    return status;
  }
  const std::string name = name_of(*innermost(app));
  say("{}: {}; see {} --help\n", name, error.what(), name);
  return exit_usage;
}

// CLI11 would only say that an argument was not expected, or that a subcommand is required.
void refuse_unknown_subcommand(const CLI::App& app, std::span<const std::string> arguments) {
  const auto known = app.get_subcommands({});
  if (known.empty() || arguments.empty() || arguments.front().starts_with('-')) return;
  const std::string& name = arguments.front();
  for (const CLI::App* command : known) {
    if (command->check_name(name)) return refuse_unknown_subcommand(*command, arguments.subspan(1));
  }
  std::vector<std::string> names;
  for (const CLI::App* command : known) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  const std::string of = app.get_parent() == nullptr ? "" : " of " + name_of(app);
  throw UsageError(fmt::format("there is no subcommand '{}'{}; there are: {}", name, of,
                               fmt::join(names, ", ")));
}

// Other launchers take the program without a mark before it.
void expect_dashes_before_program(const CLI::App& app, const CommandLine& line) {
  const CLI::App& command = *innermost(app);
  if (command.get_name() != "run" || !line.behind_dashes.empty()) return;
  const std::vector<std::string> left = command.remaining();
  const auto program =
      std::ranges::find_if(left, [](const std::string& text) { return !text.starts_with('-'); });
  if (program == left.end()) return;
  throw UsageError(
      fmt::format("'{}' is no option; write -- before the program: rondo run -n 2 -- {}", *program,
                  fmt::join(program, left.end(), " ")));
}

// The next files that are opened would take the numbers of closed standard streams, and what is
// printed would go into them. Writing still fails, as for a closed one: these are only for reading.
void fill_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() takes the lowest number that is free. Programs that are started inherit it.
    if (fcntl(stream, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDONLY));
  }
}

int run_command_line(int argc, char** argv) {
  const CommandLine line = split(argc, argv);
  int status = exit_done;
  CLI::App app{"Trains convolutional networks on clusters of CPUs.", "rondo"};
  app.set_version_flag("--version", "rondo " RONDO_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  Command root(app, line, status);
  for (const auto add : {add_run, add_init, add_config, add_train, add_find_rate, add_compare,
                         add_report, add_eval, add_predict, add_export, add_inspect, add_plan,
                         add_bench, add_info, add_doctor, add_generate}) {
    add(root);
  }
  refuse_unknown_subcommand(app, line.own);
  try {
    // CLI11 takes arguments from the back.
    app.parse(std::vector<std::string>(line.own.rbegin(), line.own.rend()));
  } catch (const CLI::ExtrasError& error) {
    expect_dashes_before_program(app, line);
    return report_misuse(app, error);
  } catch (const CLI::ParseError& error) {
    return report_misuse(app, error);
  }
  return status;
}

// Whose reader has ended?
bool is_broken_pipe(int descriptor) {
  pollfd entry{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & POLLERR) != 0;
}

// Results that were lost, as on a full disk, must not pass for a success. The reader of a pipe may
// have had enough of it: that is no error. Usually SIGPIPE ends this process then.
void expect_written_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  const bool fails_now = std::fflush(stdout) != 0;
  if (!failed_before && !fails_now) return;
  const int reason = lost_output() != 0 ? lost_output() : errno;
  if (is_broken_pipe(STDOUT_FILENO)) return;
  errno = reason;
  if (errno == 0) throw std::runtime_error(output_is_lost);  // the reason is forgotten
  throw std::system_error(errno, std::generic_category(), output_is_lost);
}

int run_and_write(int argc, char** argv) {
  fill_standard_streams();
  keep_running_beyond_file_size();
  try {
    const int status = run_command_line(argc, argv);
    if (status == exit_done) expect_written_output();
    return status;
  } catch (const std::system_error& error) {
    // The code that prints a long text says only that a file cannot be written. Where a line was
    // lost before, the error is another one.
    if (std::ferror(stdout) == 0 || lost_output() != 0) throw;
    if (error.code().category() != std::generic_category()) throw;
    if (is_broken_pipe(STDOUT_FILENO)) throw;
    throw std::system_error(error.code(), output_is_lost);
  }
}

}  // namespace
}  // namespace rondo::tools

int main(int argc, char** argv) {
  using rondo::tools::report;
  try {
    rondo::tools::restore_initial_cpus();
    return rondo::tools::run_and_write(argc, argv);
  } catch (...) {
    return report(std::current_exception());
  }
}
