#include "layers/batch_norm_kernel.hpp"

#include <utility>

namespace rondo::train {

BatchNormKernel::BatchNormKernel(tensor::Engine& engine, const tensor::BatchNormSpec& spec,
                                 tensor::SumOverRanks sum_over_ranks)
    : kernel_(engine, spec, std::move(sum_over_ranks)),
      channels_(static_cast<std::size_t>(spec.input.c)) {}

void BatchNormKernel::forward_training(const ForwardOperands& operands,
                                       std::span<float> statistics) {
  kernel_.forward_training(operands.x, operands.residual, split(operands.parameters),
                           statistics.first(channels_), statistics.subspan(channels_), operands.y);
}

void BatchNormKernel::forward_inference(const ForwardOperands& operands,
                                        std::span<const float> statistics) {
  kernel_.forward_inference(operands.x, operands.residual, split(operands.parameters),
                            statistics.first(channels_), statistics.subspan(channels_), operands.y);
}

void BatchNormKernel::backward_parameters(const BackwardOperands& operands) {
  kernel_.backward(operands.x, operands.y, split(operands.parameters), operands.dy, operands.dx,
                   operands.gradients.first(channels_), operands.gradients.subspan(channels_),
                   operands.dy_also);
}

tensor::BatchNormParameters BatchNormKernel::split(std::span<const float> parameters) const {
  return {.scale = parameters.first(channels_), .shift = parameters.subspan(channels_)};
}

}  // namespace rondo::train
