#pragma once

#include <rondo/train/model.hpp>

namespace rondo::train {

// A layer of the model and the shape of its input, as the kernel's specification.

[[nodiscard]] tensor::ConvolutionSpec spec_of(const ConvolutionLayer& layer, tensor::Shape input);
[[nodiscard]] tensor::BatchNormSpec spec_of(const BatchNormLayer& layer, tensor::Shape input);
[[nodiscard]] tensor::PoolingSpec spec_of(const PoolingLayer& layer, tensor::Shape input);
[[nodiscard]] tensor::PoolingSpec spec_of(const GlobalAveragePoolingLayer& layer,
                                          tensor::Shape input);
[[nodiscard]] tensor::FullyConnectedSpec spec_of(const FullyConnectedLayer& layer,
                                                 tensor::Shape input);

}  // namespace rondo::train
