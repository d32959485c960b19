#pragma once

#include <vector>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::reference {

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
