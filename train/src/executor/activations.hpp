#pragma once

#include <cstdint>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/tensor/view.hpp>
#include <rondo/train/model.hpp>

#include "executor/backward_plan.hpp"

namespace rondo::train {

/// The memory of a step: every value that a layer writes, and the buffers of their gradients,
/// for up to `images` images. All batch sizes use the same memory: one step runs at a time.
class Activations {
 public:
  Activations(tensor::Engine& engine, const Model& model, const BackwardPlan& plan,
              std::int64_t images);

  /// The model's input, which is the caller's, or what a layer wrote.
  [[nodiscard]] tensor::View<const float> read(ValueId value, const float* input,
                                               std::int64_t images) const;
  [[nodiscard]] tensor::View<float> write(ValueId value, std::int64_t images);

  /// A gradient buffer in the shape of `value`.
  [[nodiscard]] tensor::View<float> gradient(BufferId buffer, ValueId value, std::int64_t images);

 private:
  std::vector<tensor::Shape> shapes_;      // of one image
  std::vector<tensor::Tensor> values_;     // value v is values_[v - 1]
  std::vector<tensor::Tensor> gradients_;  // by BufferId
};

}  // namespace rondo::train
