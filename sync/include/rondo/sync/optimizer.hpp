#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

/// Turns gradients into updates of the parameters: one fused pass over flat memory.
///
/// An optimizer keeps its state (momenta) for a flat array of parameters, and can step any range
/// of it at a time, so that a bucket is updated as soon as it is reduced.
class RONDO_SYNC_API Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Updates `parameters` by `gradients * gradient_scale`. Both are the range of the flat arrays
  /// that begins at element `offset`. Within one step() of training each range is given once.
  virtual void update(std::size_t offset, std::span<float> parameters,
                      std::span<const float> gradients, float gradient_scale,
                      double learning_rate) = 0;

  /// All state that update() reads, for a checkpoint; restore() takes it back exactly.
  [[nodiscard]] virtual std::vector<std::byte> save() const = 0;
  virtual void restore(std::span<const std::byte> state) = 0;
};

/// SGD with momentum and weight decay: v = mu*v + scale*g + lambda*w; w = w - eta*v.
struct SgdOptions {
  float momentum = 0.9F;
  float weight_decay = 0.0F;
};

/// For a flat array of `size` parameters.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<Optimizer> make_sgd(std::size_t size,
                                                                 const SgdOptions& options);

}  // namespace rondo::sync
