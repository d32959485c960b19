#pragma once

#include <vector>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/tensor.hpp>

// What the kernels must compute, as plain loops in double over dense tensors.
namespace rondo::tensor::reference {

[[nodiscard]] Tensor convolution(const ConvolutionSpec& spec, const Tensor& x,
                                 const std::vector<float>& weights, const std::vector<float>& bias);

[[nodiscard]] Tensor convolution_backward_data(const ConvolutionSpec& spec, const Tensor& dy,
                                               const std::vector<float>& weights);

[[nodiscard]] std::vector<float> convolution_backward_weights(const ConvolutionSpec& spec,
                                                              const Tensor& x, const Tensor& dy);

/// The gradient of any layer's bias: the sum of dy over all but channels.
[[nodiscard]] std::vector<float> bias_gradient(const Tensor& dy);

}  // namespace rondo::tensor::reference
