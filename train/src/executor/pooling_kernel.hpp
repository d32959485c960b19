#pragma once

#include <rondo/tensor/pooling.hpp>

#include "executor/layer_kernel.hpp"

namespace rondo::train {

/// Pooling: learns nothing.
class PoolingKernel final : public LayerKernel {
 public:
  PoolingKernel(tensor::Engine& engine, const tensor::PoolingSpec& spec);

  std::unique_ptr<LayerKernel> for_images(std::int64_t images) override;
  void forward_training(const ForwardOperands& operands, std::span<float> statistics) override;
  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> statistics) override;
  void backward_parameters(const BackwardOperands& operands) override;
  void backward_input(const BackwardOperands& operands) override;
  [[nodiscard]] std::string implementation() const override;

 private:
  tensor::Engine& engine_;
  tensor::Pooling kernel_;
};

}  // namespace rondo::train
