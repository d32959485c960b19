#include "model/specs.hpp"

namespace rondo::train {

tensor::ConvolutionSpec spec_of(const ConvolutionLayer& layer, tensor::Shape input) {
  return {.input = input,
          .filters = layer.filters,
          .kernel_h = layer.kernel,
          .kernel_w = layer.kernel,
          .stride = layer.stride,
          .pad_top = layer.padding,
          .pad_bottom = layer.padding,
          .pad_left = layer.padding,
          .pad_right = layer.padding,
          .bias = layer.bias,
          .activation = layer.activation};
}

tensor::BatchNormSpec spec_of(const BatchNormLayer& layer, tensor::Shape input) {
  return {.input = input,
          .activation = layer.activation,
          .residual = layer.residual,
          .momentum = layer.momentum};
}

tensor::PoolingSpec spec_of(const PoolingLayer& layer, tensor::Shape input) {
  return {.input = input,
          .kind = layer.kind,
          .window_h = layer.window,
          .window_w = layer.window,
          .stride = layer.stride,
          .pad_top = layer.padding,
          .pad_bottom = layer.padding,
          .pad_left = layer.padding,
          .pad_right = layer.padding};
}

tensor::PoolingSpec spec_of(const GlobalAveragePoolingLayer& /*layer*/, tensor::Shape input) {
  return {.input = input,
          .kind = tensor::PoolingKind::average,
          .window_h = input.h,
          .window_w = input.w,
          .stride = 1};
}

tensor::FullyConnectedSpec spec_of(const FullyConnectedLayer& layer, tensor::Shape input) {
  return {.input = input, .outputs = layer.outputs, .activation = layer.activation};
}

}  // namespace rondo::train
