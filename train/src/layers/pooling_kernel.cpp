#include "layers/pooling_kernel.hpp"

namespace rondo::train {

PoolingKernel::PoolingKernel(tensor::Engine& engine, const tensor::PoolingSpec& spec)
    : kernel_(engine, spec) {}

void PoolingKernel::forward(const ForwardOperands& operands) {
  kernel_.forward(operands.x, operands.y);
}

void PoolingKernel::backward_parameters(const BackwardOperands& /*operands*/) {}

void PoolingKernel::backward_input(const BackwardOperands& operands) {
  if (operands.dx.data != nullptr) kernel_.backward(operands.dy, operands.dx);
}

std::string PoolingKernel::implementation() const { return kernel_.implementation(); }

}  // namespace rondo::train
