#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

/// A fully connected layer: input [N,H,W,C], output [N,1,1,outputs].
///
/// Weights in the flat parameter array are [outputs, C*H*W] with the inputs in torch's order
/// (C slowest, then H, then W), so that parameters mean the same in both worlds.
struct FullyConnectedSpec {
  Shape input = {};
  std::int64_t outputs = 0;
  bool bias = true;
  Activation activation = Activation::none;
  InputGradient input_gradient = InputGradient::wanted;
  WeightGradient weight_gradient = WeightGradient::wanted;
  DataType type = DataType::f32;  ///< of input, output and their gradients
  /// Is dx fp32 whatever the type, a part of a sum that is added up elsewhere?
  bool f32_input_gradient = false;

  [[nodiscard]] DataType input_gradient_type() const noexcept {
    return f32_input_gradient ? DataType::f32 : type;
  }
  [[nodiscard]] Shape output() const noexcept { return {input.n, 1, 1, outputs}; }
  [[nodiscard]] std::int64_t weights() const noexcept { return outputs * input.image(); }
};

/// A fully connected layer by oneDNN. Same contract as Convolution.
class RONDO_TENSOR_API FullyConnected {
 public:
  FullyConnected(Engine& engine, const FullyConnectedSpec& spec);
  FullyConnected(FullyConnected& other, std::int64_t images);
  /// The same weights: `spec` has the outputs of `other`, and images of its shape.
  FullyConnected(FullyConnected& other, const FullyConnectedSpec& spec);
  FullyConnected(FullyConnected&&) noexcept;
  FullyConnected& operator=(FullyConnected&&) noexcept;
  ~FullyConnected();

  [[nodiscard]] const FullyConnectedSpec& spec() const noexcept;
  void pack_weights(std::span<const float> weights);
  void forward(ConstAnyView x, std::span<const float> bias, AnyView y);
  void backward_data(ConstAnyView dy, AnyView dx);
  void backward_weights(ConstAnyView x, ConstAnyView dy, std::span<float> bias_gradient);
  void unpack_gradients(std::span<float> weights);
  [[nodiscard]] std::string implementation() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::tensor
