#pragma once

#include <CLI/CLI.hpp>

#include "launch/placement.hpp"

namespace rondo::tools {

/// Adds the options that every subcommand with ranks of its own has: -n, --threads, --bind and
/// --oversubscribe. `request` must outlive the parsing.
void add_launch_options(CLI::App& command, PlacementRequest& request);

}  // namespace rondo::tools
