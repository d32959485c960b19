// Sums of several values, with a ReLU behind them if wanted: shortcuts of networks whose batch norm
// stands elsewhere than in front of the sum. (Where it stands there, batch norm adds the shortcut
// itself, for less: BatchNormLayer::residual.)
//
// Backward is nothing but copies: each input's gradient is that of the sum. The first input's takes
// the place of dy, so that a sum of two values costs one copy, or none where the other value is the
// model's input.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/team.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

class AddKernel final : public OneForwardKernel {
 public:
  AddKernel(tensor::Engine& engine, tensor::Activation activation)
      : engine_(engine), rectifies_(activation == tensor::Activation::relu) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  // Where the first gradient lies over dy, nothing is left to do for it.
  void backward_input(const BackwardOperands& operands) override {
    // Masked once, in place: all inputs get the masked gradient.
    if (rectifies_) tensor::backward_relu(engine_, operands.y, operands.dy);
    const float* dy = operands.dy.as<float>().data;
    for (const tensor::View<float>& dx : operands.input_gradients) {
      if (dx.data == nullptr || dx.data == dy) continue;
      tensor::for_each_share(engine_, dx.shape.size(), [&](std::int64_t first, std::int64_t last) {
        std::copy(dy + first, dy + last, dx.data + first);
      });
    }
  }

 private:
  void forward(const ForwardOperands& operands) override {
    tensor::for_each_share(engine_, operands.y.shape.size(),
                           [&](std::int64_t first, std::int64_t last) {
                             sum(operands.inputs, operands.y.as<float>().data, first, last);
                           });
  }

  // In the order of the inputs. A part that fits into the cache is finished before the next.
  void sum(std::span<const tensor::View<const float>> inputs, float* y, std::int64_t first,
           std::int64_t last) const {
    // So many floats are 16 KiB, which lie in the first-level cache while every input is added.
    constexpr std::int64_t at_once = 4096;
    for (std::int64_t i = first; i < last; i += at_once) {
      const std::int64_t end = std::min(i + at_once, last);
      std::copy(inputs[0].data + i, inputs[0].data + end, y + i);
      for (const tensor::View<const float>& x : inputs.subspan(1)) {
        for (std::int64_t k = i; k < end; ++k) y[k] += x.data[k];
      }
      if (!rectifies_) continue;
      for (std::int64_t k = i; k < end; ++k) y[k] = y[k] < 0.0F ? 0.0F : y[k];
    }
  }

  tensor::Engine& engine_;
  bool rectifies_;
};

class Add final : public LayerType {
 public:
  explicit Add(const AddLayer& layer) : activation_(layer.activation) {}

  std::string text() const override {
    return "add act" + std::to_string(static_cast<int>(activation_));
  }
  LayerTraits traits() const noexcept override {
    return {.several_inputs = true, .in_place = true};
  }
  std::size_t inputs() const noexcept override { return 2; }
  tensor::Shape output(const tensor::Shape& input) const override { return input; }
  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& /*input*/,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    return std::make_unique<AddKernel>(engine, activation_);
  }

 private:
  tensor::Activation activation_;
};

}  // namespace

std::shared_ptr<const LayerType> make_layer_type(const AddLayer& layer) {
  return std::make_shared<Add>(layer);
}

DescribedKind describe_add() {
  return {.name = "add",
          .keys = {"with", "activation"},
          .required = {"with"},
          .make = [](const Experiment::Layer& layer) -> LayerKind {
            return AddLayer{.activation = activation_of(layer, tensor::Activation::none)};
          }};
}

}  // namespace rondo::train
