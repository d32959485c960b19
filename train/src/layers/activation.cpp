// Functions of single elements, as layers: for networks whose ReLU is part of no other layer, or is
// none. A layer of its own costs a pass over memory in each direction; so where there is an
// activation of batch norm, a convolution or a sum that will do, take that.
//
// ReLU6 is such a layer behind MobileNet's batch norms.

#include <limits>
#include <memory>
#include <string>

#include <rondo/tensor/elementwise.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

class ActivationKernel final : public OneForwardKernel {
 public:
  ActivationKernel(tensor::Engine& engine, float most) : engine_(engine), most_(most) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  // The function's slope is 1 between the limits, which the output tells, and 0 on them.
  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data == nullptr) return;
    if (operands.dx.data != operands.dy.data) tensor::convert(engine_, operands.dy, operands.dx);
    tensor::backward_relu(engine_, operands.y, operands.dx, most_);
  }

 private:
  void forward(const ForwardOperands& operands) override {
    tensor::relu(engine_, operands.x, operands.y, most_);
  }

  tensor::Engine& engine_;
  float most_;
};

class Activation final : public LayerType {
 public:
  explicit Activation(const ActivationLayer& layer) : function_(layer.function) {}

  std::string text() const override {
    return function_ == Function::relu6 ? "activation relu6" : "activation relu";
  }
  // Backward reads y and dy alone, so dx may lie over dy.
  LayerTraits traits() const noexcept override { return {.in_place = true, .any_type = true}; }
  tensor::Shape output(const tensor::Shape& input) const override { return input; }
  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& /*input*/,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    // One kernel does for both: a ReLU has no upper limit.
    const float unlimited = std::numeric_limits<float>::infinity();
    return std::make_unique<ActivationKernel>(engine,
                                              function_ == Function::relu6 ? 6.0F : unlimited);
  }

 private:
  Function function_;
};

}  // namespace

std::shared_ptr<const LayerType> make_layer_type(const ActivationLayer& layer) {
  return std::make_shared<Activation>(layer);
}

DescribedKind describe_activation() {
  return {.name = "activation",
          .keys = {"function"},
          .make = [](const Experiment::Layer& layer) -> LayerKind {
            return ActivationLayer{.function = layer.function == "relu6" ? Function::relu6
                                                                         : Function::relu};
          }};
}

}  // namespace rondo::train
