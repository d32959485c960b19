#include "model/lenet.hpp"

#include "model/model_builder.hpp"

namespace rondo::train {
namespace {

ConvolutionLayer lenet_convolution(std::int64_t filters, std::int64_t padding) {
  return {.filters = filters,
          .kernel = 5,
          .stride = 1,
          .padding = padding,
          .bias = true,
          .activation = tensor::Activation::relu,
          .initial = Initial::uniform_fan_in};
}

}  // namespace

Model make_lenet5(tensor::Shape input, std::int64_t classes) {
  ModelBuilder builder("lenet5", input, classes);
  ValueId x = builder.add("conv1", lenet_convolution(6, 2), ModelBuilder::input);
  x = builder.add("pool1", PoolingLayer{}, x);
  x = builder.add("conv2", lenet_convolution(16, 0), x);
  x = builder.add("pool2", PoolingLayer{}, x);
  x = builder.add("fc1", FullyConnectedLayer{.outputs = 120, .activation = relu}, x);
  x = builder.add("fc2", FullyConnectedLayer{.outputs = 84, .activation = relu}, x);
  builder.add("fc3", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace rondo::train
