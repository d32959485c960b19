#pragma once

#include <vector>

#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::reference {

/// Weights are [outputs, C, H, W], as in the flat parameter array.
[[nodiscard]] Tensor fully_connected(const FullyConnectedSpec& spec, const Tensor& x,
                                     const std::vector<float>& weights,
                                     const std::vector<float>& bias);

[[nodiscard]] Tensor fully_connected_backward_data(const FullyConnectedSpec& spec, const Tensor& dy,
                                                   const std::vector<float>& weights);

[[nodiscard]] std::vector<float> fully_connected_backward_weights(const FullyConnectedSpec& spec,
                                                                  const Tensor& x,
                                                                  const Tensor& dy);

}  // namespace rondo::tensor::reference
