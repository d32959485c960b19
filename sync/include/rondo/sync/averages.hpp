#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// The plain mean of the statistics of the ranks that hold the same, for evaluation.
///
/// Summed in double, where sums of equal floats are exact: ranks that agree get back what they
/// gave.
class RONDO_SYNC_API StatisticsMean {
 public:
  explicit StatisticsMean(const Replica& replica);

  /// Is there anything to reduce?
  [[nodiscard]] bool reduces() const noexcept;

  /// Writes the mean of the ranks' `mine` to `mean`. Collective, unless reduces() is false.
  void compute(std::span<const float> mine, std::span<float> mean);

 private:
  transport::Communicator& ranks_;
  std::pmr::vector<double> sums_;  // in the arena
};

/// This rank's displacement w - W, its statistics and perhaps its optimizer's state, side by side
/// in the arena, to be averaged over a group in one collective. A copy: where that fails, nothing
/// of the model has changed.
///
/// Displacement and state are weighed, statistics are not. Behind them lies the weight, so that
/// each rank also gets the sum of all; ranks of equal weights 1 get the bits of a plain mean.
class RONDO_SYNC_API PackedMean {
 public:
  /// `replica` is lent. `state_size`: values of optimizer state that pack() may be given.
  explicit PackedMean(const Replica& replica, std::size_t state_size = 0);

  /// Copies in what this rank has, which counts `weight` times. `start` is W; if it is empty, W is
  /// zero and the displacement is the parameters themselves. `state` may be empty.
  void pack(std::span<const float> start, std::span<const float> state, float weight);

  /// Replaces what was packed by its mean over the ranks of `group`, which are several. Waits.
  void reduce(transport::Communicator& group);

  /// Has any of the ranks a weight? Else there is neither a displacement nor a mean of states.
  [[nodiscard]] bool has_weight() const noexcept { return packed_.back() > 0.0F; }

  /// Of what was packed: what reduce() gives into the reduction.
  [[nodiscard]] std::size_t bytes() const noexcept { return packed_.size_bytes(); }

  [[nodiscard]] std::span<float> displacement() noexcept {
    return packed_.first(replica_.parameters.size());
  }
  [[nodiscard]] std::span<float> statistics() noexcept {
    return packed_.subspan(replica_.parameters.size(), replica_.statistics.size());
  }
  [[nodiscard]] std::span<float> state() noexcept {
    const std::size_t first = replica_.parameters.size() + replica_.statistics.size();
    return packed_.subspan(first, packed_.size() - 1 - first);
  }

 private:
  void weigh(float factor);

  const Replica& replica_;
  std::pmr::vector<float> memory_;  // in the arena
  std::span<float> packed_;         // what of it is in use; the weight is last
};

}  // namespace rondo::sync
