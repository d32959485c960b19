#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "checkpoint/manifest.hpp"
#include "config/grid_choice.hpp"
#include "trainer/prepare.hpp"
#include "trainer/run_state.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::train {

class RunLog;

/// The checkpoint that a run goes on from.
struct ResumedCheckpoint {
  std::filesystem::path path = {};
  Manifest manifest = {};
  /// As many ranks on the same grid as the run that it is of: they go on with the same bits.
  bool exact = false;

  /// The part of rank `rank` of that run. Throws DataError where it is not what was written.
  [[nodiscard]] std::vector<std::byte> read(int rank, Part part) const;
};

/// The run that goes on. All members are lent.
struct ResumingRun {
  const Experiment& experiment;
  const Model& model;
  const GridChoice& grid;
  const std::filesystem::path& folder;
  const Dataset& dataset;
  const DataDigests& digests;
  std::int64_t total_steps;  ///< at which it ends
};

/// The first checkpoint of those that `resume` may mean which no rank refuses; the log is told what
/// was skipped and why. Nothing where a run with `resume` "auto" has none: it begins. Folders and
/// `resume` are those of rank 0. Throws DataError where none can be used, and ConfigError where one
/// is of another training. Collective.
[[nodiscard]] std::optional<ResumedCheckpoint> find_checkpoint(transport::World& world,
                                                               const ResumingRun& run,
                                                               const std::filesystem::path& resume,
                                                               RunLog& log);

/// How far the run had come, for ranks that are not those of the checkpoint. Collective.
[[nodiscard]] RunState state_for_other_ranks(transport::World& world,
                                             const ResumedCheckpoint& checkpoint);

}  // namespace rondo::train
