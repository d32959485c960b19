#pragma once

#include <filesystem>

#include <rondo/train/experiment.hpp>

namespace rondo::tools {

/// A folder under runs/ that does not exist yet, named after the time and the experiment.
[[nodiscard]] std::filesystem::path new_run_folder(const train::Experiment& experiment);

/// Makes `folder`, unless it exists, and writes the resolved configuration into its config.toml.
/// Throws UsageError when that cannot be done, or when another run's files are in it. Doing it
/// twice for the same run is no error.
void prepare_run_folder(const std::filesystem::path& folder, const train::Experiment& experiment);

/// Writes config.toml of a run anew: `experiment` says what was left open, as by grid.plan =
/// "auto". Throws UsageError when it cannot be written.
void rewrite_config(const std::filesystem::path& folder, const train::Experiment& experiment);

}  // namespace rondo::tools
