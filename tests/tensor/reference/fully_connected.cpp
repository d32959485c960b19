#include "reference/fully_connected.hpp"

#include "reference/convolution.hpp"

// A fully connected layer is a convolution whose kernel is the whole image.
namespace rondo::tensor::reference {
namespace {

ConvolutionSpec as_convolution(const FullyConnectedSpec& spec) {
  return {.input = spec.input,
          .filters = spec.outputs,
          .kernel_h = spec.input.h,
          .kernel_w = spec.input.w,
          .bias = spec.bias,
          .activation = spec.activation};
}

}  // namespace

Tensor fully_connected(const FullyConnectedSpec& spec, const Tensor& x,
                       const std::vector<float>& weights, const std::vector<float>& bias) {
  return convolution(as_convolution(spec), x, weights, bias);
}

Tensor fully_connected_backward_data(const FullyConnectedSpec& spec, const Tensor& dy,
                                     const std::vector<float>& weights) {
  return convolution_backward_data(as_convolution(spec), dy, weights);
}

std::vector<float> fully_connected_backward_weights(const FullyConnectedSpec& spec, const Tensor& x,
                                                    const Tensor& dy) {
  return convolution_backward_weights(as_convolution(spec), x, dy);
}

}  // namespace rondo::tensor::reference
