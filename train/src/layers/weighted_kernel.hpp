#pragma once

#include <memory>
#include <utility>

#include <rondo/tensor/elementwise.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {

/// A layer with weights, and perhaps a bias behind them in its parameter block: Kernel is
/// tensor::Convolution or tensor::FullyConnected.
template <typename Kernel>
class WeightedKernel final : public OneForwardKernel {
 public:
  WeightedKernel(tensor::Engine& engine, Kernel kernel)
      : engine_(engine),
        kernel_(std::move(kernel)),
        weights_(static_cast<std::size_t>(kernel_.spec().weights())) {}

  void load(std::span<const float> parameters) override {
    kernel_.pack_weights(parameters.first(weights_));
  }

  void backward_parameters(const BackwardOperands& operands) override {
    if (kernel_.spec().activation == tensor::Activation::relu) {
      tensor::backward_relu(engine_, operands.y, operands.dy);
    }
    kernel_.backward_weights(operands.x, operands.dy, operands.gradients.subspan(weights_));
    kernel_.unpack_gradients(operands.gradients.first(weights_));
  }

  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data != nullptr) kernel_.backward_data(operands.dy, operands.dx);
  }

  std::string implementation() const override { return kernel_.implementation(); }

 private:
  void forward(const ForwardOperands& operands) override {
    kernel_.forward(operands.x, operands.parameters.subspan(weights_), operands.y);
  }

  tensor::Engine& engine_;
  Kernel kernel_;
  std::size_t weights_;
};

/// For batches of `spec`'s input; for evaluation without backward.
template <typename Kernel, typename Spec>
[[nodiscard]] std::unique_ptr<LayerKernel> make_weighted_kernel(
    tensor::Engine& engine, Spec spec, bool input_gradient, KernelPurpose purpose,
    tensor::DataType type = tensor::DataType::f32) {
  spec.type = type;
  spec.input_gradient =
      input_gradient ? tensor::InputGradient::wanted : tensor::InputGradient::unused;
  if (purpose == KernelPurpose::evaluation) spec.weight_gradient = tensor::WeightGradient::unused;
  return std::make_unique<WeightedKernel<Kernel>>(engine, Kernel(engine, spec));
}

/// `weight` and, of as many elements as it has rows, a bias that begins as PyTorch's does.
[[nodiscard]] inline LayerParameters weight_and_bias(Parameter weight, bool with_bias) {
  LayerParameters parameters{.learned = {weight}};
  if (with_bias) {
    weight.name = "bias";
    weight.shape = {weight.shape[0]};
    weight.initial = Initial::uniform_fan_in;
    parameters.learned.push_back(std::move(weight));
  }
  return parameters;
}

}  // namespace rondo::train
