#pragma once

#include <filesystem>
#include <string>

#include "compare/run_record.hpp"
#include "train/training_job.hpp"

namespace rondo::tools {

enum class RunState {
  absent,      ///< nothing is there
  incomplete,  ///< the same run began, but did not complete
  completed,   ///< the same run completed
  different,   ///< a run of another configuration, or with other ranks or threads
};

/// What is in a run folder, seen from the run that is to be there.
struct FoundRun {
  RunState state = RunState::absent;
  std::string difference = {};  ///< of a different one: "update.period is 8, would be 16"
  RunRecord record = {};
};

/// The first key in which two configurations differ, as "SECTION.KEY is OLD, would be NEW"; empty
/// when they are the same. A key that `recorded` lacks has its default: it is younger than the run.
/// Where `wanted` has grid.plan = "auto", what it chose in the run makes no difference.
[[nodiscard]] std::string first_difference(const std::string& recorded,
                                           const train::Experiment& wanted);

/// Compares what is in `folder` with `training`.
[[nodiscard]] FoundRun find_run(const std::filesystem::path& folder, const Training& training);

/// Removes the files of a run from `folder`, and no others. Throws UsageError.
void remove_run(const std::filesystem::path& folder);

}  // namespace rondo::tools
