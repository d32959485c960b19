#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

#include "launch/fabric_request.hpp"
#include "launch/placement.hpp"

namespace rondo::tools {

/// Adds the options that every subcommand with ranks of its own has: -n, --threads, --bind and
/// --oversubscribe. `request` must outlive the parsing.
void add_launch_options(CLI::App& command, PlacementRequest& request);

/// Adds --fake-nodes, --fabric, --interface, --latency-us and --bandwidth-gbs. `request` must
/// outlive the parsing.
void add_fabric_options(CLI::App& command, FabricRequest& request);

/// Adds --flight-record, whose default the help text gives as `otherwise`. `folder` must outlive
/// the parsing.
void add_flight_record_option(CLI::App& command, std::filesystem::path& folder,
                              const std::string& otherwise);

/// In a process that is a rank already: throws UsageError when `request` asks for another number
/// of ranks than there are.
void refuse_other_size(const PlacementRequest& request);

}  // namespace rondo::tools
