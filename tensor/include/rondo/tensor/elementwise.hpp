#pragma once

#include <span>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/view.hpp>

namespace rondo::tensor {

/// dy *= (y > 0): the gradient before a ReLU, from the gradient after it and the ReLU's output.
RONDO_TENSOR_API void backward_relu(Engine& engine, View<const float> y, View<float> dy);

/// into += from: where the gradients of two consumers of one tensor meet.
RONDO_TENSOR_API void add(Engine& engine, View<const float> from, View<float> into);

/// y = activation(y + bias), in place: what a convolution does last, where its sum over channels
/// comes from several ranks. `bias` has an element for each channel, or none when there is none.
RONDO_TENSOR_API void add_bias(Engine& engine, std::span<const float> bias, Activation activation,
                               View<float> y);

/// sums[c] = the sum of channel c over all pixels of all images: the gradient of a bias. Added in
/// double, pixel after pixel: bits depend on nothing but the values.
RONDO_TENSOR_API void sum_pixels(Engine& engine, View<const float> from, std::span<float> sums);

}  // namespace rondo::tensor
