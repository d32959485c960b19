#pragma once

#include <rondo/tensor/pooling.hpp>

#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// Pooling: learns nothing.
class PoolingKernel final : public OneForwardKernel {
 public:
  PoolingKernel(tensor::Engine& engine, const tensor::PoolingSpec& spec);

  void backward_parameters(const BackwardOperands& operands) override;
  void backward_input(const BackwardOperands& operands) override;
  [[nodiscard]] std::string implementation() const override;

 private:
  void forward(const ForwardOperands& operands) override;

  tensor::Pooling kernel_;
};

}  // namespace rondo::train
