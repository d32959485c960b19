#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/update_scheme.hpp>

#include "checkpoint/resume.hpp"
#include "executor/memory.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/resumed_checkpoint.hpp"

namespace rondo::train {

/// One rank's part of the model that was evaluated last: what the update scheme would make of its
/// parameters and statistics with all that is still pending. Training goes on with the originals.
class EvaluatedModel {
 public:
  /// With arrays of so many elements from `memory`, which is lent.
  EvaluatedModel(AccountedMemory& memory, std::size_t parameters, std::size_t statistics);

  /// Has nothing been copied yet?
  [[nodiscard]] bool empty() const noexcept { return step_ < 0; }
  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }
  /// The statistics of the layout, then SharedStatistics.
  [[nodiscard]] std::span<const float> statistics() const noexcept { return statistics_; }

  /// Copies the model as it is after `step` steps. Collective.
  void copy(sync::UpdateScheme& scheme, GridMembership& grid, std::int64_t step);

  /// Copies what rank `rank` had evaluated when the checkpoint was taken, after `step` steps; what
  /// is not in it is as in the arrays that are trained.
  void restore(const ResumedCheckpoint& checkpoint, int rank, std::int64_t step,
               std::span<const float> trained_parameters,
               std::span<const float> trained_statistics);

  /// The part that a checkpoint after `step` steps keeps besides the parameters that are trained.
  /// Refers to the arrays here; empty where they are of another step.
  [[nodiscard]] EvaluatedPart part(std::int64_t step,
                                   std::span<const float> trained_parameters) const;

 private:
  std::pmr::vector<float> parameters_;
  std::pmr::vector<float> statistics_;
  std::int64_t step_ = -1;  // after so many the copy was taken
};

}  // namespace rondo::train
