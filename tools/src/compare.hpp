#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "compare/items.hpp"
#include "compare/runs.hpp"
#include "train/training.hpp"

namespace rondo::tools {

/// A user's request for a comparison.
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
