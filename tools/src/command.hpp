#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace rondo::tools {

// One function per subcommand: it adds the subcommand to `app`. When the command line chose it,
// its callback runs it and leaves its exit status in `status`; both outlive the parsing.

/// `command` is what stands behind "--".
void add_run(CLI::App& app, const std::vector<std::string>& command, int& status);

void add_train(CLI::App& app, int& status);

void add_compare(CLI::App& app, int& status);

void add_plan(CLI::App& app, int& status);

void add_info(CLI::App& app, int& status);

/// `arguments` are those of this process: its ranks get the same. Also below.
void add_bench(CLI::App& app, const std::vector<std::string>& arguments, int& status);
void add_bench_operations(CLI::App& bench, const std::vector<std::string>& arguments, int& status);
void add_bench_tune(CLI::App& bench, const std::vector<std::string>& arguments, int& status);
void add_bench_model(CLI::App& bench, const std::vector<std::string>& arguments, int& status);

}  // namespace rondo::tools
