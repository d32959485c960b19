#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/runs.hpp"
#include "train/training.hpp"

namespace rondo::tools {

/// One of the things that `rondo compare` compares: a scheme, and settings of it.
struct SchemeItem {
  std::string text = {};                   ///< "k_step:period=16", as the user wrote it
  std::string label = {};                  ///< the same as a folder's name: "k_step-period=16"
  std::vector<std::string> settings = {};  ///< "update.scheme=k_step", "update.period=16"
};

/// Reads "NAME[:KEY=VALUE]...". A key without a dot is one of [update]; colons in quotes and
/// brackets belong to the value. Whether names and keys exist is not looked at. Throws UsageError,
/// also for train.seed, which is not the item's to choose.
[[nodiscard]] SchemeItem parse_scheme_item(std::string_view text);

/// The items of several comma-separated lists. Commas in quotes and brackets separate nothing.
/// Throws UsageError, also when two items would share a folder.
[[nodiscard]] std::vector<SchemeItem> parse_scheme_items(const std::vector<std::string>& lists);

/// What a user asks of a comparison.
struct CompareRequest {
  TrainRequest training = {};  ///< what all runs have in common
  std::vector<std::string> schemes = {};
  std::vector<std::int64_t> seeds = {};
  std::filesystem::path folder = {};
  std::optional<double> accuracy = {};  ///< percent
  bool anew = false;                    ///< replace runs of another configuration
};

/// One run of a comparison, and what is in its folder.
struct PlannedRun {
  std::size_t item = 0;   ///< index of its scheme
  std::string name = {};  ///< "k_step-period=16 seed 2"
  TrainRequest request = {};
  Training training = {};
  FoundRun found = {};
};

struct Plan {
  std::vector<SchemeItem> items = {};
  std::vector<PlannedRun> runs = {};  ///< the first seed of every item, then the second
};

/// Reads every run's configuration and looks at what is in its folder. Changes nothing. Throws
/// UsageError, which names the item, and train::ConfigError when it is the configuration's fault.
[[nodiscard]] Plan make_plan(const CompareRequest& request);

/// Throws UsageError when a folder holds a run of another configuration.
void refuse_other_runs(const Plan& plan);

}  // namespace rondo::tools
