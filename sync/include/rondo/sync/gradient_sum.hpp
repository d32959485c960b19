#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::transport {
class Team;
}

namespace rondo::sync {

/// Sums of gradients, for steps and schemes that do not use each gradient at once.
///
/// Gradient accumulation, a step whose batch is computed as several micro-batches:
///
///     scheme.begin(step);
///     forward (make_ready) and backward of every micro-batch but the last:
///         for each layer: sum.add(layer.offset, its gradients)
///     forward and backward of the last micro-batch:
///         for each layer, output side first:
///             sum.move_to(layer.offset, its gradients);  scheme.gradients_final(layer)
///     scheme.finish();
///
/// Gradients are sums over samples, so micro-batches may be unequal. They are added in fp32, in the
/// order of the micro-batches, the last one's last; the bits depend neither on threads nor on how
/// the array is cut into ranges. Nothing is communicated before the last micro-batch, and what
/// overlaps its backward pass still does.
///
/// Schemes sum the gradients of several iterations with set() and add(): make_lazy() and
/// make_cyclic().
///
/// Owns one array as long as the gradients, in `memory`. Long ranges are shared among the threads
/// of `team`, which is lent and outlives the sum. The calls allocate nothing, belong to one thread,
/// and throw std::invalid_argument when a range does not fit.
class RONDO_SYNC_API GradientSum {
 public:
  /// Zeros.
  explicit GradientSum(std::size_t size, transport::Team* team = nullptr,
                       std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  /// Adds factor * gradients to the range of the flat array that begins at element `offset`.
  void add(std::size_t offset, std::span<const float> gradients, float factor = 1.0F);

  /// As add(), where the sum of that range begins anew.
  void set(std::size_t offset, std::span<const float> gradients, float factor = 1.0F);

  /// Adds the sum to the last micro-batch's gradients; the sum of that range is zero again.
  void move_to(std::size_t offset, std::span<float> gradients);

  /// The whole array.
  [[nodiscard]] std::span<float> values() noexcept { return sum_; }
  [[nodiscard]] std::span<const float> values() const noexcept { return sum_; }

 private:
  template <typename Pass>
  void for_each_part(std::size_t offset, std::size_t size, Pass pass);

  std::pmr::vector<float> sum_;
  transport::Team* team_;
};

}  // namespace rondo::sync
