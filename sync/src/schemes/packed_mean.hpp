#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {

/// This rank's displacement w - W, its statistics and perhaps its optimizer's state, side by side
/// in the arena, to be averaged over a group in one collective. A copy: where that fails, nothing
/// of the model has changed.
///
/// Displacement and state are weighed, statistics are not. Behind them lies the weight, so that
/// each rank also gets the sum of all; ranks of equal weights 1 get the bits of a plain mean.
class PackedMean {
 public:
  /// `replica` is lent. `state_size`: values of optimizer state that pack() may be given.
  PackedMean(const Replica& replica, std::size_t state_size);

  /// Copies in what this rank has, which counts `weight` times. `state` may be empty.
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
  [[nodiscard]] std::span<const float> statistics() noexcept { return packed_statistics(); }
  [[nodiscard]] std::span<const float> state() noexcept { return packed_state(); }

 private:
  [[nodiscard]] std::span<float> packed_statistics() noexcept {
    return packed_.subspan(replica_.parameters.size(), replica_.statistics.size());
  }
  [[nodiscard]] std::span<float> packed_state() noexcept {
    const std::size_t first = replica_.parameters.size() + replica_.statistics.size();
    return packed_.subspan(first, packed_.size() - 1 - first);
  }
  void weigh(float factor);

  const Replica& replica_;
  std::pmr::vector<float> memory_;  // in the arena
  std::span<float> packed_;         // what of it is in use; the weight is last
};

}  // namespace rondo::sync
