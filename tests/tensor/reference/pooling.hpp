#pragma once

#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::reference {

[[nodiscard]] Tensor pooling(const PoolingSpec& spec, const Tensor& x);

/// Of several equal maxima the first gets the gradient.
[[nodiscard]] Tensor pooling_backward(const PoolingSpec& spec, const Tensor& x, const Tensor& dy);

}  // namespace rondo::tensor::reference
