#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

/// The function that follows a convolution or fully connected layer in the same kernel.
enum class Activation : std::uint8_t { none, relu };

/// Is the gradient of the input wanted? The first layer of a model has no use for it.
enum class InputGradient : std::uint8_t { wanted, unused };

/// And that of the weights? A kernel that computes a part of a layer's images may leave it to
/// another one, and one that only evaluates has no use for it.
enum class WeightGradient : std::uint8_t { wanted, unused };

/// One convolution: input [N,H,W,C], weights [F,C/groups,KH,KW] (oihw in the flat parameter array),
/// output [N,H',W',F]. Filter f reads the channels of group f * groups / F alone; as many groups as
/// channels make it depthwise.
struct ConvolutionSpec {
  Shape input = {};
  std::int64_t filters = 0;
  std::int64_t kernel_h = 1;
  std::int64_t kernel_w = 1;
  std::int64_t stride = 1;
  std::int64_t pad_top = 0;
  std::int64_t pad_bottom = 0;
  std::int64_t pad_left = 0;
  std::int64_t pad_right = 0;
  bool bias = false;
  Activation activation = Activation::none;
  InputGradient input_gradient = InputGradient::wanted;
  WeightGradient weight_gradient = WeightGradient::wanted;
  std::int64_t groups = 1;        ///< divides channels and filters
  DataType type = DataType::f32;  ///< of input, output and their gradients
  /// Is y, or dx, fp32 whatever the type? So are parts of sums that are added up elsewhere, and
  /// rounded there once.
  bool f32_output = false;
  bool f32_input_gradient = false;

  [[nodiscard]] DataType output_type() const noexcept { return f32_output ? DataType::f32 : type; }
  [[nodiscard]] DataType input_gradient_type() const noexcept {
    return f32_input_gradient ? DataType::f32 : type;
  }
  [[nodiscard]] Shape output() const noexcept {
    return {input.n, (input.h + pad_top + pad_bottom - kernel_h) / stride + 1,
            (input.w + pad_left + pad_right - kernel_w) / stride + 1, filters};
  }
  [[nodiscard]] std::int64_t weights() const noexcept {
    return filters * (input.c / groups) * kernel_h * kernel_w;
  }
};

/// A convolution by oneDNN, made once for one shape and run many times.
///
/// - **Weights** are kept in the layout that the kernel likes: pack_weights() once after each
///   update; backward_weights() leaves the gradient in the layout that it likes, in memory of the
///   engine, so unpack_gradients() comes next, before any other layer packs or computes weights.
/// - **Several batch sizes** of one layer share packed weights: make the second Convolution from
///   the first (each layout that one of their kernels prefers is kept once). It may prefer another
///   layout: pack again after it was made.
/// - **Parts of images**: so do kernels for images of other extents and paddings. Packing
///   through one of those that share packs for all.
/// - **Types.** Views and packed weights have the spec's type. Weights in the flat array, their
///   gradient, and the bias with its own are fp32, and so are sums within the kernel.
/// - **Errors.** The constructor throws std::invalid_argument for impossible specs and
///   std::runtime_error when oneDNN resolves to its reference implementation, or the CPU does not
///   compute with the type. forward() and backward_data() throw std::logic_error where weights have
///   not been packed.
class RONDO_TENSOR_API Convolution {
 public:
  Convolution(Engine& engine, const ConvolutionSpec& spec);
  /// The same layer for another number of images.
  Convolution(Convolution& other, std::int64_t images);
  /// The same weights for other images: `spec` has the filters, channels and kernel of `other`.
  Convolution(Convolution& other, const ConvolutionSpec& spec);
  Convolution(Convolution&&) noexcept;
  Convolution& operator=(Convolution&&) noexcept;
  ~Convolution();

  [[nodiscard]] const ConvolutionSpec& spec() const noexcept;

  /// From [F,C,KH,KW] to the kernel's layout.
  void pack_weights(std::span<const float> oihw);

  /// y = activation(conv(x, w) + bias). `bias` is empty when the spec has none.
  void forward(ConstAnyView x, std::span<const float> bias, AnyView y);

  /// dx from dy. With an activation, dy must have passed backward_relu() (elementwise.hpp) before.
  void backward_data(ConstAnyView dy, AnyView dx);

  /// dw into the engine's buffer and, with a bias, db into `bias_gradient`; overwrites.
  void backward_weights(ConstAnyView x, ConstAnyView dy, std::span<float> bias_gradient);

  /// Writes the result of backward_weights() to `oihw`, as [F,C,KH,KW]; overwrites.
  void unpack_gradients(std::span<float> oihw);

  /// oneDNN's names of the chosen kernels: "forward NAME, data NAME, weights NAME".
  [[nodiscard]] std::string implementation() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::tensor
