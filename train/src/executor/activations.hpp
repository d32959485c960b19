#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/tensor/view.hpp>

#include "executor/backward_plan.hpp"
#include "executor/batch_plan.hpp"

namespace rondo::train {

/// The memory of a step: every value that a node writes, and the buffers of their gradients. All
/// batch sizes use the same memory: one step runs at a time.
class Activations {
 public:
  /// `sizes` are the most elements that each value has in any plan; `writers`, for messages, is
  /// what writes each value but the first.
  Activations(tensor::Engine& engine, const std::vector<std::int64_t>& sizes,
              const BackwardPlan& backward, const std::vector<std::string>& writers);

  /// The model's input, which is the caller's, or what a node wrote.
  [[nodiscard]] tensor::View<const float> read(ValueId value, const float* input,
                                               const BatchPlan& plan) const;
  [[nodiscard]] tensor::View<float> write(ValueId value, const BatchPlan& plan);

  /// A gradient buffer in the shape of `value`.
  [[nodiscard]] tensor::View<float> gradient(BufferId buffer, ValueId value, const BatchPlan& plan);

 private:
  std::vector<tensor::Tensor> values_;     // value v is values_[v - 1]
  std::vector<tensor::Tensor> gradients_;  // by BufferId
};

}  // namespace rondo::train
