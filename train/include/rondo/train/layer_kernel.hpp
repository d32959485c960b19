#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// The key of a layer's random numbers, together with the element of the whole value that each is
/// for. So they are the same for any number of ranks, and need not be kept for backward.
struct RandomKey {
  std::uint64_t layer = 0;        ///< of the run's seed and the layer's name
  std::int64_t step = 0;          ///< of the whole run
  std::int64_t first_sample = 0;  ///< of the replica's batch, within the step's global batch
};

/// The operands of a layer's forward pass. All activations of a model are of one type, their
/// gradients too; a kernel that computes in one type alone takes them by as<float>().
struct ForwardOperands {
  tensor::ConstAnyView x = {};
  tensor::ConstAnyView residual = {};  ///< data == nullptr: the layer has none
  tensor::AnyView y = {};
  std::span<const float> parameters = {};  ///< the layer's block of the flat array
  /// All that a layer of several inputs reads; the first is x. Empty for others.
  std::span<const tensor::ConstAnyView> inputs = {};
  RandomKey random = {};
};

/// The operands of a layer's backward pass. dy may be overwritten; dx may be dy.
struct BackwardOperands {
  tensor::ConstAnyView x = {};
  tensor::ConstAnyView y = {};
  tensor::AnyView dy = {};
  tensor::ConstAnyView dy_also = {};  ///< added to dy first; only batch norm is given one
  tensor::AnyView dx = {};            ///< data == nullptr: not wanted
  std::span<const float> parameters = {};
  std::span<float> gradients = {};  ///< overwritten
  /// A layer of several inputs has these instead of dx: the gradient of each, data == nullptr where
  /// it is not wanted. The first may be dy where the layer works in place; no other is.
  std::span<const tensor::AnyView> input_gradients = {};
  RandomKey random = {};
};

/// The purpose that kernels are made for. Kernels for evaluation have no backward.
enum class KernelPurpose : std::uint8_t { training, evaluation };

/// One layer for one number of images: the seam between the model, which is data, and the
/// kernels. Makes all memory when it is made. Views are of this rank's part of a value, dense, with
/// the channels innermost.
class RONDO_TRAIN_API LayerKernel {
 public:
  LayerKernel() = default;
  LayerKernel(const LayerKernel&) = delete;
  LayerKernel& operator=(const LayerKernel&) = delete;
  virtual ~LayerKernel();

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
class RONDO_TRAIN_API OneForwardKernel : public LayerKernel {
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

}  // namespace rondo::train
