#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::transport {
class Team;
}

namespace rondo::sync {

/// What one update needs beside the arrays.
struct Update {
  float gradient_scale = 1.0F;  ///< gradients are multiplied by it first, for example 1/samples
  double learning_rate = 0.0;
  std::int64_t index = 0;  ///< updates that the optimizer's state has seen before this one
};

/// Turns gradients into updates of the parameters: one fused pass over flat memory.
///
/// An optimizer keeps its state (momenta) for a flat array of parameters, and can update any
/// range of it at a time, so that a bucket is updated as soon as it is reduced. An update is
/// element by element: its bits depend neither on how the array is cut, nor on threads, nor on
/// the instruction set.
class RONDO_SYNC_API Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Updates `parameters` by `gradients`, both the range of the flat arrays that begins at
  /// element `offset`. Within one step of training each range is given once. Throws
  /// std::invalid_argument when the range does not fit; allocates nothing.
  virtual void update(std::size_t offset, std::span<float> parameters,
                      std::span<const float> gradients, const Update& update) = 0;

  /// What update() would make of `parameters`; changes no state. Allocates.
  void preview(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
               const Update& update);

  /// Does a gradient twice as long leave the update as it was? True of Adam.
  [[nodiscard]] virtual bool ignores_scale() const noexcept = 0;

  /// Everything that update() remembers (momenta): arrays as long as the parameters, one after
  /// another; zeros at first. May be averaged over ranks or set to zero between updates.
  [[nodiscard]] virtual std::span<float> state() noexcept = 0;

  /// Keeps its state in `memory` from now on, which is as long as state(), lent, and outlives the
  /// optimizer or the next call. The values that lie there count; for memory shared by ranks.
  virtual void keep_state_in(std::span<float> memory) = 0;

  /// state(), for a checkpoint; restore() takes it back exactly, or throws
  /// std::invalid_argument and changes nothing when it is not the state of such an optimizer.
  [[nodiscard]] virtual std::vector<std::byte> save() const = 0;
  virtual void restore(std::span<const std::byte> state) = 0;
};

/// SGD with momentum and weight decay: v = mu*v + scale*g + lambda*w; w = w - eta*v.
struct SgdOptions {
  float momentum = 0.9F;
  float weight_decay = 0.0F;
};

/// For a flat array of `size` parameters. Long ranges are shared among the threads of `team`,
/// which is lent and outlives the optimizer; without one the calling thread does all.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<Optimizer> make_sgd(std::size_t size,
                                                                 const SgdOptions& options,
                                                                 transport::Team* team = nullptr);

}  // namespace rondo::sync
