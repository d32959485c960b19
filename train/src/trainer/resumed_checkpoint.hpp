#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "trainer/run_state.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::train {

class RunLog;
struct TrainedState;

/// The checkpoint that a run goes on from.
struct ResumedCheckpoint {
  std::filesystem::path path = {};
  Manifest manifest = {};
  /// As many ranks on the same grid as the run that it is of: they go on with the same bits.
  bool exact = false;
  bool in_run_folder = false;  ///< does the run go on in its own folder?

  /// The folder of checkpoints that it is in, beside which a run has its logs.
  [[nodiscard]] std::filesystem::path folder() const;
  /// The part of rank `rank` of that run. Throws DataError where it is not what was written.
  [[nodiscard]] std::vector<std::byte> read(int rank, Part part) const;
};

/// The first checkpoint of those that TrainerOptions::resume may mean which no rank refuses; the
/// log is told what was skipped and why. Nothing where a run with "auto" has none: it begins.
/// Folder and `resume` are those of rank 0. Throws DataError where none can be used, and
/// ConfigError where one is of another training. Collective.
[[nodiscard]] std::optional<ResumedCheckpoint> find_checkpoint(const TrainedState& run,
                                                               const RunLog& log);

/// How far the run had come, for ranks that are not those of the checkpoint. Collective.
[[nodiscard]] RunState state_for_other_ranks(transport::World& world,
                                             const ResumedCheckpoint& checkpoint);

}  // namespace rondo::train
