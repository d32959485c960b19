#include "model/resnet_cifar.hpp"

#include <string>

#include "model/model_builder.hpp"

namespace rondo::train {
namespace {

ConvolutionLayer convolution_3x3(std::int64_t filters, std::int64_t stride) {
  return {.filters = filters, .kernel = 3, .stride = stride, .padding = 1};
}

ConvolutionLayer convolution_1x1(std::int64_t filters, std::int64_t stride) {
  return {.filters = filters, .kernel = 1, .stride = stride, .padding = 0};
}

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), where the shortcut is x itself or, where
// the shape changes, a strided 1x1 convolution of it.
ValueId add_block(ModelBuilder& builder, const std::string& name, ValueId x, std::int64_t filters,
                  std::int64_t stride, bool project) {
  ValueId shortcut = x;
  if (project) {
    shortcut = builder.add(name + ".downsample.0", convolution_1x1(filters, stride), x);
    shortcut = builder.add(name + ".downsample.1", norm_only, shortcut);
  }
  ValueId y = builder.add(name + ".conv1", convolution_3x3(filters, stride), x);
  y = builder.add(name + ".bn1", norm_relu, y);
  y = builder.add(name + ".conv2", convolution_3x3(filters, 1), y);
  return builder.add(name + ".bn2", norm_add_relu, y, shortcut);
}

}  // namespace

Model make_resnet_cifar(std::int64_t blocks, tensor::Shape input, std::int64_t classes) {
  constexpr std::int64_t stem = 16;
  const std::string name = "resnet" + std::to_string(6 * blocks + 2);
  ModelBuilder builder(name, input, classes);
  ValueId x = builder.add("conv1", convolution_3x3(stem, 1), ModelBuilder::input);
  x = builder.add("bn1", norm_relu, x);
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const bool halves = stage > 0 && block == 0;
      const std::string block_name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      x = add_block(builder, block_name, x, stem << stage, halves ? 2 : 1, halves);
    }
  }
  x = builder.add("avgpool", GlobalAveragePoolingLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace rondo::train
