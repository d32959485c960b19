#pragma once

// The results that the kernels must compute: plain loops in double over dense tensors, and for
// batch norm its formulas on xtensor's expressions.

#include <vector>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::reference {

[[nodiscard]] Tensor convolution(const ConvolutionSpec& spec, const Tensor& x,
                                 const std::vector<float>& weights, const std::vector<float>& bias);

[[nodiscard]] Tensor convolution_backward_data(const ConvolutionSpec& spec, const Tensor& dy,
                                               const std::vector<float>& weights);

[[nodiscard]] std::vector<float> convolution_backward_weights(const ConvolutionSpec& spec,
                                                              const Tensor& x, const Tensor& dy);

/// The gradient of any layer's bias: the sum of dy over all but channels.
[[nodiscard]] std::vector<float> bias_gradient(const Tensor& dy);

/// Weights are [outputs, C, H, W], as in the flat parameter array.
[[nodiscard]] Tensor fully_connected(const FullyConnectedSpec& spec, const Tensor& x,
                                     const std::vector<float>& weights,
                                     const std::vector<float>& bias);

[[nodiscard]] Tensor fully_connected_backward_data(const FullyConnectedSpec& spec, const Tensor& dy,
                                                   const std::vector<float>& weights);

[[nodiscard]] std::vector<float> fully_connected_backward_weights(const FullyConnectedSpec& spec,
                                                                  const Tensor& x,
                                                                  const Tensor& dy);

[[nodiscard]] Tensor pooling(const PoolingSpec& spec, const Tensor& x);

/// The first of several equal maxima gets the gradient.
[[nodiscard]] Tensor pooling_backward(const PoolingSpec& spec, const Tensor& x, const Tensor& dy);

/// Per channel; the variance is biased.
struct Moments {
  std::vector<double> mean;
  std::vector<double> variance;
};
[[nodiscard]] Moments moments(const Tensor& x);

/// `residual` is empty without one.
[[nodiscard]] Tensor batch_norm(const BatchNormSpec& spec, const Tensor& x, const Tensor& residual,
                                BatchNormParameters p, const Moments& by);

struct BatchNormGradients {
  Tensor residual;  ///< also the gradient after the ReLU
  Tensor x;
  std::vector<float> scale;
  std::vector<float> shift;
};
[[nodiscard]] BatchNormGradients batch_norm_backward(const BatchNormSpec& spec, const Tensor& x,
                                                     const Tensor& y, BatchNormParameters p,
                                                     const Tensor& dy);

}  // namespace rondo::tensor::reference
