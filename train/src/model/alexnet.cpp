#include "model/alexnet.hpp"

#include "model/model_builder.hpp"

namespace rondo::train {
namespace {

constexpr PoolingLayer overlapping_pool{.window = 3, .stride = 2};

ConvolutionLayer alexnet_convolution(std::int64_t filters, std::int64_t kernel,
                                     std::int64_t padding, std::int64_t stride = 1) {
  return {.filters = filters,
          .kernel = kernel,
          .stride = stride,
          .padding = padding,
          .bias = true,
          .activation = relu,
          .initial = Initial::uniform_fan_in};
}

}  // namespace

Model make_alexnet(tensor::Shape input, std::int64_t classes) {
  ModelBuilder builder("alexnet", input, classes);
  ValueId x = builder.add("features.0", alexnet_convolution(64, 11, 2, 4), ModelBuilder::input);
  x = builder.add("features.2", overlapping_pool, x);
  x = builder.add("features.3", alexnet_convolution(192, 5, 2), x);
  x = builder.add("features.5", overlapping_pool, x);
  x = builder.add("features.6", alexnet_convolution(384, 3, 1), x);
  x = builder.add("features.8", alexnet_convolution(256, 3, 1), x);
  x = builder.add("features.10", alexnet_convolution(256, 3, 1), x);
  x = builder.add("features.12", overlapping_pool, x);
  x = builder.add("classifier.1", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  x = builder.add("classifier.4", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  builder.add("classifier.6", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

Model make_alexnet_2012(tensor::Shape input, std::int64_t classes) {
  ModelBuilder builder("alexnet-2012", input, classes);
  ValueId x = builder.add("conv1", alexnet_convolution(96, 11, 0, 4), ModelBuilder::input);
  x = builder.add("pool1", overlapping_pool, x);
  x = builder.add("conv2", alexnet_convolution(256, 5, 2), x);
  x = builder.add("pool2", overlapping_pool, x);
  x = builder.add("conv3", alexnet_convolution(384, 3, 1), x);
  x = builder.add("conv4", alexnet_convolution(384, 3, 1), x);
  x = builder.add("conv5", alexnet_convolution(256, 3, 1), x);
  x = builder.add("pool5", overlapping_pool, x);
  x = builder.add("fc6", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  x = builder.add("fc7", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  builder.add("fc8", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace rondo::train
