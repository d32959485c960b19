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
class PackedMean {
 public:
  /// `replica` is lent. `state_size`: values of optimizer state that pack() may be given.
  PackedMean(const Replica& replica, std::size_t state_size);

  /// Copies in what this rank has. `state` may be empty.
  void pack(std::span<const float> start, std::span<const float> state);

  /// Replaces what was packed by its mean over the ranks of `group`, which are several. Waits.
  void reduce(transport::Communicator& group);

  /// Of what was packed: what reduce() gives into the reduction.
  [[nodiscard]] std::size_t bytes() const noexcept { return packed_.size_bytes(); }

  [[nodiscard]] std::span<float> displacement() noexcept {
    return packed_.first(replica_.parameters.size());
  }
  [[nodiscard]] std::span<const float> statistics() const noexcept {
    return packed_.subspan(replica_.parameters.size(), replica_.statistics.size());
  }
  [[nodiscard]] std::span<const float> state() const noexcept {
    return packed_.subspan(replica_.parameters.size() + replica_.statistics.size());
  }

 private:
  const Replica& replica_;
  std::pmr::vector<float> memory_;  // in the arena
  std::span<float> packed_;         // what of it is in use
};

}  // namespace rondo::sync
