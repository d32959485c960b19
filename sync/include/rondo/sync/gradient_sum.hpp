#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::transport {
class Team;
}

namespace rondo::sync {

/// Gradient accumulation: a step whose batch is computed in several pieces, one after another.
///
///     scheme.begin(step);
///     forward (make_ready) and backward of every piece but the last:
///         for each layer: sum.add(layer.offset, its gradients)
///     forward and backward of the last piece:
///         for each layer, output side first:
///             sum.move_to(layer.offset, its gradients);  scheme.gradients_final(layer)
///     scheme.finish();
///
/// Gradients are sums over samples, so pieces may be unequal. They are added in fp32, in the order
/// of the pieces, the last one's last; the bits depend neither on threads nor on how the array is
/// cut into ranges. Nothing is communicated before the last piece, and what overlaps its backward
/// pass still does.
///
/// Owns one array as long as the gradients. Long ranges are shared among the threads of `team`,
/// which is lent and outlives the sum. The calls allocate nothing, belong to one thread, and throw
/// std::invalid_argument when a range does not fit.
class RONDO_SYNC_API GradientSum {
 public:
  explicit GradientSum(std::size_t size, transport::Team* team = nullptr);

  /// Adds a piece's gradients, the range of the flat array that begins at element `offset`.
  void add(std::size_t offset, std::span<const float> gradients);

  /// Adds the sum to the last piece's gradients; the sum of that range is zero again.
  void move_to(std::size_t offset, std::span<float> gradients);

 private:
  std::vector<float> sum_;
  transport::Team* team_;
};

}  // namespace rondo::sync
