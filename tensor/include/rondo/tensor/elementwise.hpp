#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

/// y = min(max(x, 0), most): a ReLU, with most = 6 a ReLU6. NaN stays NaN. y may lie over x.
RONDO_TENSOR_API void relu(Engine& engine, ConstAnyView x, AnyView y,
                           float most = std::numeric_limits<float>::infinity());

/// dy *= (0 < y < most): the gradient before a ReLU, from the gradient after it and the ReLU's
/// output.
RONDO_TENSOR_API void backward_relu(Engine& engine, ConstAnyView y, AnyView dy,
                                    float most = std::numeric_limits<float>::infinity());

/// into += from: where the gradients of two consumers of one tensor meet.
RONDO_TENSOR_API void add(Engine& engine, ConstAnyView from, AnyView into);

/// Copies, and rounds or widens where the types differ.
RONDO_TENSOR_API void convert(Engine& engine, ConstAnyView from, AnyView into);

/// y = activation(y + bias), in place: what a convolution does last, where its sum over channels
/// comes from several ranks. `bias` has an element for each channel, or none when there is none.
RONDO_TENSOR_API void add_bias(Engine& engine, std::span<const float> bias, Activation activation,
                               AnyView y);

/// sums[c] = the sum of channel c over all pixels of all images: the gradient of a bias. Added in
/// double, pixel after pixel: bits depend on nothing but the values.
RONDO_TENSOR_API void sum_pixels(Engine& engine, ConstAnyView from, std::span<float> sums);

/// Is no element NaN or infinite? Runs on the calling thread, at the speed of memory.
[[nodiscard]] RONDO_TENSOR_API bool all_finite(std::span<const float> values) noexcept;
[[nodiscard]] RONDO_TENSOR_API bool all_finite(std::span<const Bfloat16> values) noexcept;

/// The summed loss of a batch, and how many of its images had the label's class on top.
struct Loss {
  double sum = 0.0;
  std::int64_t correct = 0;
};

/// Where an image is a mixture of two: the label of the other one, and the share of the first.
struct MixedLabels {
  std::span<const std::int32_t> others = {};  ///< one for each label, or none: nothing is mixed
  double share = 1.0;
};

/// Softmax cross-entropy with label smoothing: the target puts 1 - smoothing on the label and
/// spreads `smoothing` evenly over all classes (PyTorch's definition).
///
/// `logits` is [N,1,1,classes]; `labels` has N entries in [0, classes). Both the loss and the
/// gradient are sums over the batch, not means: ranks add them up and divide once. `gradient`
/// may be the same memory as `logits`; data == nullptr: not wanted.
///
/// The target of a mixture is that of the label times `mixed.share`, plus that of the other label
/// times the rest; it counts as correct when the label of the larger share is on top.
RONDO_TENSOR_API Loss softmax_cross_entropy(Engine& engine, View<const float> logits,
                                            std::span<const std::int32_t> labels, float smoothing,
                                            View<float> gradient, const MixedLabels& mixed = {});

}  // namespace rondo::tensor
