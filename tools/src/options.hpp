#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "launch/environment.hpp"
#include "machine.hpp"
#include "table.hpp"

namespace rondo::tools {

extern const Choices<Format> text_or_json;
extern const Choices<Format> table_or_json;
extern const Choices<Format> table_csv_or_json;

/// Adds --format.
Option add_format_option(Command& command, Format& format, const Choices<Format>& formats,
                         const std::string& text);

/// Adds the positional `config` and --set; `more` ends the help text of each.
void add_experiment_options(Command& command, std::filesystem::path& config,
                            std::vector<std::string>& settings, const std::string& about_config,
                            const std::string& about_settings);

/// Adds the options that every command with ranks of its own has: -n, --threads, --bind and
/// --oversubscribe. `ranks` says how many there are without -n.
void add_placement_options(Command& command, PlacementRequest& request,
                           const std::string& ranks = "one per NUMA domain");

/// Adds --fake-nodes, --fabric, --interface, --latency-us and --bandwidth-gbs.
void add_fabric_options(Command& command, FabricRequest& request);

/// Adds --flight-record, whose default the help text gives as `otherwise`.
void add_flight_record_option(Command& command, std::filesystem::path& folder,
                              const std::string& otherwise);

/// A number of bytes: a whole number, alone or with K, M, G, T, P or E (powers of 1024), which may
/// be followed by B or iB; in any case. Throws UsageError.
[[nodiscard]] std::uint64_t parse_bytes(std::string_view text);

/// The sizes that "MIN:MAX" means: MIN, 4 MIN, 16 MIN, ... up to MAX, each as parse_bytes() reads
/// it; "SIZE" alone is one size. Each is at least one element, and a whole number of elements, of
/// `element_bytes`. Throws UsageError.
[[nodiscard]] std::vector<std::size_t> byte_sizes(std::string_view range,
                                                  std::size_t element_bytes = 4);

}  // namespace rondo::tools
