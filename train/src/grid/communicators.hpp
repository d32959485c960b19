#pragma once

#include <map>
#include <vector>

#include <rondo/train/partition.hpp>
#include <rondo/transport/communicator.hpp>

namespace rondo::train {

/// The communicators of a grid, as one rank holds them. The members of equal ones are made once.
class GridCommunicators {
 public:
  /// Collective over `all`, which has grid.ranks() ranks and is lent.
  GridCommunicators(transport::Communicator& all, ProcessGrid grid);

  [[nodiscard]] ProcessGrid grid() const noexcept { return grid_; }
  [[nodiscard]] int rank() const noexcept { return all_.rank(); }

  [[nodiscard]] transport::Communicator& all() noexcept { return all_; }
  /// The ranks of this rank's replica, by position.
  [[nodiscard]] transport::Communicator& replica();
  /// Those of this rank's position in every replica, by replica. Collective over `all` the first
  /// time.
  [[nodiscard]] transport::Communicator& across();
  /// This rank together with all that have its color, ordered by key, then by rank. `colors` and
  /// `keys` have an entry for every rank of the grid, the same on all ranks. Collective over
  /// `all` the first time.
  [[nodiscard]] transport::Communicator& split(const std::vector<int>& colors,
                                               const std::vector<int>& keys);

 private:
  transport::Communicator& all_;
  ProcessGrid grid_;
  std::map<std::vector<int>, transport::Communicator> made_;  ///< by each rank's color and key
};

}  // namespace rondo::train
