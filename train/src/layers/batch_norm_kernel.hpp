#pragma once

#include <rondo/tensor/batch_norm.hpp>

#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// Batch norm: its group is scale, then shift; its statistics are running mean, then variance.
class BatchNormKernel final : public LayerKernel {
 public:
  BatchNormKernel(tensor::Engine& engine, const tensor::BatchNormSpec& spec,
                  tensor::SumOverRanks sum_over_ranks = {});

  void forward_training(const ForwardOperands& operands, std::span<float> statistics) override;
  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> statistics) override;
  /// Also writes dx, and leaves the gradient of the residual input in dy.
  void backward_parameters(const BackwardOperands& operands) override;

 private:
  [[nodiscard]] tensor::BatchNormParameters split(std::span<const float> parameters) const;

  tensor::BatchNorm kernel_;
  std::size_t channels_;
};

}  // namespace rondo::train
