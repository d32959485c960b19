#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// What a layer reads and writes in the forward pass. All activations of a model are of one type,
/// their gradients too; a kernel that computes in one type alone takes them by as<float>().
struct ForwardOperands {
  tensor::ConstAnyView x = {};
  tensor::ConstAnyView residual = {};  ///< data == nullptr: the layer has none
  tensor::AnyView y = {};
  std::span<const float> parameters = {};  ///< the layer's block of the flat array
};

/// What it reads and writes in the backward pass. dy may be overwritten; dx may be dy.
struct BackwardOperands {
  tensor::ConstAnyView x = {};
  tensor::ConstAnyView y = {};
  tensor::AnyView dy = {};
  tensor::ConstAnyView dy_also = {};  ///< added to dy first; only batch norm is given one
  tensor::AnyView dx = {};            ///< data == nullptr: not wanted
  std::span<const float> parameters = {};
  std::span<float> gradients = {};  ///< overwritten
};

/// What kernels are made for. Those for evaluation have no backward.
enum class KernelPurpose : std::uint8_t { training, evaluation };

/// One layer for one number of images: the seam between the model, which is data, and the
/// kernels. Makes all memory when it is made.
class LayerKernel {
 public:
  LayerKernel() = default;
  LayerKernel(const LayerKernel&) = delete;
  LayerKernel& operator=(const LayerKernel&) = delete;
  virtual ~LayerKernel() = default;

  /// The layer's parameters have changed.
  virtual void load(std::span<const float> parameters);

  virtual void forward_training(const ForwardOperands& operands, std::span<float> statistics) = 0;
  virtual void forward_inference(const ForwardOperands& operands,
                                 std::span<const float> statistics) = 0;

  /// The two halves of backward, in this order. The gradients of the parameters are final after
  /// the first. A kernel that computes both at once does so in the first.
  virtual void backward_parameters(const BackwardOperands& operands) = 0;
  virtual void backward_input(const BackwardOperands& operands);

  /// Names of the chosen kernels; empty when there was nothing to choose.
  [[nodiscard]] virtual std::string implementation() const;
};

/// A layer that computes in training what it computes in evaluation, and measures nothing.
class OneForwardKernel : public LayerKernel {
 public:
  void forward_training(const ForwardOperands& operands, std::span<float> /*statistics*/) final {
    forward(operands);
  }
  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> /*statistics*/) final {
    forward(operands);
  }

 private:
  virtual void forward(const ForwardOperands& operands) = 0;
};

/// The kernel of `layer` for inputs of shape `input`. Without `input_gradient` one with weights is
/// never given a dx; for evaluation none is asked for any gradient. Throws std::invalid_argument
/// where the layer has no kernel for `type`.
[[nodiscard]] std::unique_ptr<LayerKernel> make_layer_kernel(
    tensor::Engine& engine, const LayerKind& layer, tensor::Shape input, bool input_gradient,
    KernelPurpose purpose = KernelPurpose::training, tensor::DataType type = tensor::DataType::f32);

}  // namespace rondo::train
