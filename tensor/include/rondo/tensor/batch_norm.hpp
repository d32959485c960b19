#pragma once

#include <functional>
#include <memory>
#include <span>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

/// Batch normalisation, an optional residual addition, and an optional ReLU, as one layer:
/// y = activation(scale * (x - mean) / sqrt(variance + epsilon) + shift + residual).
struct BatchNormSpec {
  Shape input = {};
  Activation activation = Activation::relu;
  bool residual = false;
  float epsilon = 1e-5F;
  float momentum = 0.1F;          ///< running = (1 - momentum) * running + momentum * batch
  DataType type = DataType::f32;  ///< of x, residual, y and their gradients
};

/// The learned and the running values of one layer, each of C elements, in the caller's arrays.
struct BatchNormParameters {
  std::span<const float> scale = {};
  std::span<const float> shift = {};
};

/// Replaces numbers by their sums over all ranks that share the statistics of one layer. Called on
/// the thread that calls the layer, by every rank equally often and with as many numbers; all are
/// given the same bits.
using SumOverRanks = std::function<void(std::span<double>)>;

/// Our own kernel: statistics in one pass over x, then normalise + add + ReLU in one; backward in
/// two. Variances are biased in the batch and unbiased in the running average, as in PyTorch.
///
/// - forward_training() keeps what backward() needs: mean and 1/sqrt(variance + epsilon).
/// - backward() belongs to the forward_training() before it. Where ReLU passed it learns from y if
///   there is a residual; otherwise it computes that again from x, which is faster.
/// - dy is overwritten when there is a residual: by the gradient after ReLU, which is that of the
///   residual input. With `also`, dy is overwritten in any case.
/// - Bits depend on the number of threads (fixed cuts), not on timing, nor on the CPU.
/// - An empty batch (n = 0) is allowed: gradients are zero, running values stay.
/// - In bf16, too, all is computed in fp32 and summed in double; y, dy and dx are rounded once.
///
/// With a SumOverRanks, mean and variance in forward_training() are those of all ranks' images
/// together, and so are the sums that dx depends on: the ranks' y and dx are what one rank with all
/// images would compute. Ranks may differ in n, h and w, as they do when images are split; all
/// have the same channels, scale and shift.
///
/// - It is called once in each forward_training(), with 1 + 2 C numbers (count, sums and sums of
///   squares), and once in each backward(), with 2 C. forward_inference() has no use for it.
/// - A rank without images takes part with zeros and moves its running values as the others do,
///   which therefore stay equal. Where no rank has any, they stay as they are.
/// - scale_gradient and shift_gradient are sums over this rank's own images.
/// - Moments are summed over ranks about zero, in double: where a mean is 10^4 deviations, eight
///   digits of the variance are left.
class RONDO_TENSOR_API BatchNorm {
 public:
  BatchNorm(Engine& engine, const BatchNormSpec& spec, SumOverRanks sum_over_ranks = {});
  BatchNorm(BatchNorm&&) noexcept;
  BatchNorm& operator=(BatchNorm&&) noexcept;
  ~BatchNorm();

  [[nodiscard]] const BatchNormSpec& spec() const noexcept;

  /// x, residual (data == nullptr without one) and y have the spec's H, W, C and up to its N.
  /// forward_inference() keeps nothing and disturbs nothing.
  void forward_training(ConstAnyView x, ConstAnyView residual, BatchNormParameters p,
                        std::span<float> running_mean, std::span<float> running_variance,
                        AnyView y);
  void forward_inference(ConstAnyView x, ConstAnyView residual, BatchNormParameters p,
                         std::span<const float> running_mean,
                         std::span<const float> running_variance, AnyView y);

  /// dx may be the same memory as dy when there is no residual. `also`, if given, is added to dy
  /// first: the gradient from another reader of y, for less than an add() of its own.
  void backward(ConstAnyView x, ConstAnyView y, BatchNormParameters p, AnyView dy, AnyView dx,
                std::span<float> scale_gradient, std::span<float> shift_gradient,
                ConstAnyView also = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::tensor
