#pragma once

#include <cstddef>
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

  /// All state that update() reads, for a checkpoint; restore() takes it back exactly, or throws
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
