// Sums of several values, with a ReLU behind them if wanted: shortcuts of networks whose batch norm
// stands elsewhere than in front of the sum. (Where it stands there, batch norm adds the shortcut
// itself, for less: BatchNormLayer::residual.)
//
// Backward is nothing but copies: each input's gradient is that of the sum. The first input's takes
// the place of dy, so that a sum of two values costs one copy, or none where the other value is the
// model's input.
//
// Sums are computed in fp32, and in bf16 rounded once, however many values there are.

#include <algorithm>
#include <array>
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
    for (const tensor::AnyView& dx : operands.input_gradients) {
      if (dx.data == nullptr || dx.data == operands.dy.data) continue;
      tensor::with_type(dx.type, [&]<typename T>(T /*of*/) {
        const T* from = operands.dy.as<T>().data;
        T* into = dx.as<T>().data;
        tensor::for_each_share(engine_, dx.shape.size(),
                               [&](std::int64_t first, std::int64_t last) {
                                 std::copy(from + first, from + last, into + first);
                               });
      });
    }
  }

 private:
  void forward(const ForwardOperands& operands) override {
    tensor::with_type(operands.y.type, [&]<typename T>(T /*of*/) {
      for (const tensor::ConstAnyView& x : operands.inputs) static_cast<void>(x.as<T>());
      tensor::for_each_share(engine_, operands.y.shape.size(),
                             [&](std::int64_t first, std::int64_t last) {
                               sum<T>(operands.inputs, operands.y.as<T>().data, first, last);
                             });
    });
  }

  // In the order of the inputs, so much at a time that the sums stay in the cache.
  template <typename T>
  void sum(std::span<const tensor::ConstAnyView> inputs, T* y, std::int64_t first,
           std::int64_t last) const {
    constexpr std::int64_t at_once = 1024;
    std::array<float, at_once> sums;
    for (std::int64_t i = first; i < last; i += at_once) {
      const std::int64_t count = std::min(at_once, last - i);
      std::transform(data_of<T>(inputs[0]) + i, data_of<T>(inputs[0]) + i + count, sums.begin(),
                     [](T value) { return tensor::to_float(value); });
      for (const tensor::ConstAnyView& input : inputs.subspan(1)) {
        std::transform(data_of<T>(input) + i, data_of<T>(input) + i + count, sums.begin(),
                       sums.begin(),
                       [](T value, float sum) { return sum + tensor::to_float(value); });
      }
      std::transform(sums.begin(), sums.begin() + count, y + i, [this](float sum) {
        return tensor::from_float<T>(rectifies_ && sum < 0.0F ? 0.0F : sum);
      });
    }
  }

  template <typename T>
  static const T* data_of(const tensor::ConstAnyView& view) noexcept {
    return static_cast<const T*>(view.data);
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
    return {.several_inputs = true, .in_place = true, .any_type = true};
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
