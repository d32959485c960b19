// MobileNet v2 (Sandler et al., 2018) as torchvision builds it: each block widens its input by a
// 1x1 convolution, filters every channel by itself (depthwise), and narrows again without an
// activation. Names are torchvision's, where ReLU6 is a numbered module of its own.

#include <array>
#include <string>

#include "model/zoo.hpp"

namespace rondo::train {
namespace {

struct Stage {
  std::int64_t expansion;
  std::int64_t channels;
  std::int64_t blocks;
  std::int64_t stride;  // of the first block
};
constexpr std::array<Stage, 7> stages = {{{1, 16, 1, 1},
                                          {6, 24, 2, 2},
                                          {6, 32, 3, 2},
                                          {6, 64, 4, 2},
                                          {6, 96, 3, 1},
                                          {6, 160, 3, 2},
                                          {6, 320, 1, 1}}};

// NAME.0, NAME.1 and NAME.2.
ValueId add_rectified(ModelBuilder& builder, const std::string& name, const ConvolutionLayer& layer,
                      ValueId x) {
  x = builder.add(name + ".0", layer, x);
  x = builder.add(name + ".1", norm_only, x);
  return builder.add(name + ".2", ActivationLayer{.function = Function::relu6}, x);
}

ConvolutionLayer pointwise(std::int64_t filters) {
  return {.filters = filters, .kernel = 1, .padding = 0};
}

ConvolutionLayer depthwise(std::int64_t channels, std::int64_t stride) {
  return {.filters = channels, .stride = stride, .groups = channels};
}

struct InvertedResidual {
  std::string name = {};
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t expansion = 1;
  std::int64_t stride = 1;
};

ValueId add_block(ModelBuilder& builder, const InvertedResidual& block, ValueId x) {
  const std::string conv = block.name + ".conv.";
  const std::int64_t wide = block.expansion * block.from;
  int module = 0;
  ValueId y = x;
  if (block.expansion != 1) {
    y = add_rectified(builder, conv + std::to_string(module++), pointwise(wide), y);
  }
  y = add_rectified(builder, conv + std::to_string(module++), depthwise(wide, block.stride), y);
  y = builder.add(conv + std::to_string(module++), pointwise(block.to), y);
  const std::string norm = conv + std::to_string(module);
  // The shortcut is added by the last batch norm, without an activation (the linear bottleneck).
  if (block.stride != 1 || block.from != block.to) return builder.add(norm, norm_only, y);
  return builder.add(norm, BatchNormLayer{.activation = tensor::Activation::none, .residual = true},
                     y, x);
}

}  // namespace

Model make_mobilenet_v2(tensor::Shape input, std::int64_t classes) {
  ModelBuilder builder("mobilenet_v2", input, classes);
  std::int64_t channels = 32;
  ValueId x =
      add_rectified(builder, "features.0", {.filters = channels, .stride = 2}, ModelBuilder::input);
  int number = 1;
  for (const Stage& stage : stages) {
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      const std::string name = "features." + std::to_string(number++);
      const std::int64_t stride = i == 0 ? stage.stride : 1;
      x = add_block(builder, {name, channels, stage.channels, stage.expansion, stride}, x);
      channels = stage.channels;
    }
  }
  x = add_rectified(builder, "features." + std::to_string(number), pointwise(1280), x);
  x = builder.add("avgpool", GlobalAveragePoolingLayer{}, x);
  x = builder.add("classifier.0", DropoutLayer{.probability = 0.2}, x);
  builder.add("classifier.1", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace rondo::train
