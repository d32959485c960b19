// The rondo program: reads the command line and calls the subcommand.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "exit_status.hpp"
#include "failure.hpp"

namespace rondo::tools {
namespace {

// What stands behind the first "--" belongs to the program that `run` starts; CLI11 never sees it.
struct CommandLine {
  std::vector<std::string> own;
  std::vector<std::string> behind_dashes;
};

// `rondo bench --tune` reads like an option, but is a command of its own.
void name_tuning(std::vector<std::string>& own) {
  if (own.size() > 1 && own[0] == "bench" && own[1] == "--tune") own[1] = "tune";
}

CommandLine split(int argc, char** argv) {
  CommandLine line;
  bool behind = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!behind && argument == "--" && !line.own.empty() && line.own.front() == "run") {
      behind = true;
    } else {
      (behind ? line.behind_dashes : line.own).emplace_back(argument);
    }
  }
  name_tuning(line.own);
  return line;
}

const CLI::App* innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? &app : innermost(*chosen.front());
}

std::string name_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : name_of(*app.get_parent()) + " " + app.get_name();
}

int report_misuse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const std::string name = name_of(*innermost(app));
  fmt::print(stderr, "{}: {}; see {} --help\n", name, error.what(), name);
  return exit_usage;
}

void refuse_unknown_subcommand(const CLI::App& app, const CommandLine& line) {
  if (line.own.empty() || line.own.front().starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands({})) names.push_back(known->get_name());
  if (std::ranges::count(names, line.own.front()) > 0) return;
  throw UsageError(fmt::format("there is no subcommand '{}'; there are: {}", line.own.front(),
                               fmt::join(names, ", ")));
}

int run_command_line(int argc, char** argv) {
  CommandLine line = split(argc, argv);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int status = exit_done;
  CLI::App app{"Trains convolutional networks on clusters of CPUs.", "rondo"};
  app.set_version_flag("--version", "rondo " RONDO_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  add_run(app, line.behind_dashes, status);
  add_train(app, status);
  add_compare(app, status);
  add_plan(app, status);
  add_bench(app, arguments, status);
  add_info(app, status);
  refuse_unknown_subcommand(app, line);
  try {
    std::ranges::reverse(line.own);  // CLI11 takes them from the back
    app.parse(line.own);
  } catch (const CLI::ParseError& error) {
    return report_misuse(app, error);
  }
  return status;
}

}  // namespace
}  // namespace rondo::tools

int main(int argc, char** argv) {
  using rondo::tools::report;
  try {
    return rondo::tools::run_command_line(argc, argv);
  } catch (...) {
    return report(std::current_exception());
  }
}
