#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace rondo::tools {

// One function per subcommand: it adds the subcommand to `app`. When the command line chose it,
// its callback runs it and leaves its exit status in `status`; both outlive the parsing.

/// `command` is what stands behind "--".
void add_run(CLI::App& app, const std::vector<std::string>& command, int& status);

}  // namespace rondo::tools
