// The ResNets of He et al. (2016): those for CIFAR (section 4.2) with projection shortcuts, and
// those for ImageNet (section 4.1) as torchvision builds them. Batch norm adds the shortcut and
// applies ReLU, so that a residual block needs no layer for the sum.

#include <array>
#include <string>

#include "model/zoo.hpp"

namespace rondo::train {
namespace {

using Blocks = std::array<std::int64_t, 4>;  // of each stage

// The design that all blocks of a network share: a basic block is two 3x3 convolutions, a
// bottleneck one 3x3 convolution between two of 1x1.
struct Design {
  bool bottleneck = false;
  std::int64_t width = 1;  // the 3x3 convolutions have so many times the stage's filters
};

struct ResidualBlock {
  std::string name = {};
  std::int64_t filters = 0;  // of the stage
  std::int64_t stride = 1;
  bool project = false;
};

ConvolutionLayer plain_convolution(std::int64_t filters, std::int64_t kernel,
                                   std::int64_t stride = 1) {
  return {.filters = filters, .kernel = kernel, .stride = stride, .padding = kernel / 2};
}

std::int64_t outputs_of(const Design& design, std::int64_t filters) {
  constexpr std::int64_t expansion = 4;
  return design.bottleneck ? expansion * filters : filters;
}

// The branch that the block adds to its shortcut, up to the last convolution.
ValueId add_branch(ModelBuilder& builder, const Design& design, const ResidualBlock& block,
                   ValueId x) {
  const std::string& name = block.name;
  const std::int64_t width = design.width * block.filters;
  ValueId y = x;
  if (!design.bottleneck) {
    y = builder.add(name + ".conv1", plain_convolution(width, 3, block.stride), y);
    y = builder.add(name + ".bn1", norm_relu, y);
    return builder.add(name + ".conv2", plain_convolution(width, 3), y);
  }
  y = builder.add(name + ".conv1", plain_convolution(width, 1), y);
  y = builder.add(name + ".bn1", norm_relu, y);
  y = builder.add(name + ".conv2", plain_convolution(width, 3, block.stride), y);
  y = builder.add(name + ".bn2", norm_relu, y);
  return builder.add(name + ".conv3", plain_convolution(outputs_of(design, block.filters), 1), y);
}

ValueId add_block(ModelBuilder& builder, const Design& design, const ResidualBlock& block,
                  ValueId x) {
  ValueId shortcut = x;
  // The shortcut's layers come first, in the order in which forward runs them. Names, and not
  // positions, identify parameters, so files of torchvision fit all the same.
  if (block.project) {
    const ConvolutionLayer layer =
        plain_convolution(outputs_of(design, block.filters), 1, block.stride);
    shortcut = builder.add(block.name + ".downsample.0", layer, x);
    shortcut = builder.add(block.name + ".downsample.1", norm_only, shortcut);
  }
  const ValueId y = add_branch(builder, design, block, x);
  return builder.add(block.name + (design.bottleneck ? ".bn3" : ".bn2"), norm_add_relu, y,
                     shortcut);
}

Model make_resnet(const char* name, const Design& design, const Blocks& blocks, tensor::Shape input,
                  std::int64_t classes) {
  constexpr std::int64_t stem = 64;
  ModelBuilder builder(name, input, classes);
  ValueId x = builder.add("conv1", plain_convolution(stem, 7, 2), ModelBuilder::input);
  x = builder.add("bn1", norm_relu, x);
  x = builder.add("maxpool", PoolingLayer{.window = 3, .stride = 2, .padding = 1}, x);
  std::int64_t channels = stem;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::int64_t filters = stem << stage;
    for (std::int64_t i = 0; i < blocks[stage]; ++i) {
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      // A bottleneck has four times the filters at its end, so already the first stage projects.
      const bool project = stride != 1 || channels != outputs_of(design, filters);
      const std::string number = std::to_string(stage + 1) + "." + std::to_string(i);
      x = add_block(builder, design, {"layer" + number, filters, stride, project}, x);
      channels = outputs_of(design, filters);
    }
  }
  x = builder.add("avgpool", GlobalAveragePoolingLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

// CIFAR.

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), where the shortcut is x itself or, where
// the shape changes, a strided 1x1 convolution of it.
ValueId add_cifar_block(ModelBuilder& builder, const std::string& name, ValueId x,
                        std::int64_t filters, std::int64_t stride, bool project) {
  ValueId shortcut = x;
  if (project) {
    shortcut = builder.add(name + ".downsample.0", plain_convolution(filters, 1, stride), x);
    shortcut = builder.add(name + ".downsample.1", norm_only, shortcut);
  }
  ValueId y = builder.add(name + ".conv1", plain_convolution(filters, 3, stride), x);
  y = builder.add(name + ".bn1", norm_relu, y);
  y = builder.add(name + ".conv2", plain_convolution(filters, 3), y);
  return builder.add(name + ".bn2", norm_add_relu, y, shortcut);
}

// shortcut + conv2(relu(bn2(conv1(relu(bn1(x)))))), where the shortcut is x itself or, where the
// shape changes, a strided 1x1 convolution of relu(bn1(x)).
ValueId add_preact_block(ModelBuilder& builder, const std::string& name, ValueId x,
                         std::int64_t filters, std::int64_t stride, bool project) {
  const ValueId active = builder.add(name + ".bn1", norm_relu, x);
  ValueId shortcut = x;
  if (project) {
    shortcut = builder.add(name + ".shortcut.0", plain_convolution(filters, 1, stride), active);
  }
  ValueId y = builder.add(name + ".conv1", plain_convolution(filters, 3, stride), active);
  y = builder.add(name + ".bn2", norm_relu, y);
  y = builder.add(name + ".conv2", plain_convolution(filters, 3), y);
  return builder.add(name + ".add", AddLayer{}, y, shortcut);
}

}  // namespace

Model make_preact_resnet(std::int64_t blocks, tensor::Shape input, std::int64_t classes) {
  constexpr std::int64_t stem = 16;
  ModelBuilder builder("preact_resnet" + std::to_string(6 * blocks + 2), input, classes);
  ValueId x = builder.add("conv1", plain_convolution(stem, 3), ModelBuilder::input);
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const bool halves = stage > 0 && block == 0;
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      x = add_preact_block(builder, name, x, stem << stage, halves ? 2 : 1, halves);
    }
  }
  x = builder.add("bn", norm_relu, x);
  x = builder.add("avgpool", GlobalAveragePoolingLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

Model make_resnet_cifar(std::int64_t blocks, tensor::Shape input, std::int64_t classes) {
  constexpr std::int64_t stem = 16;
  const std::string name = "resnet" + std::to_string(6 * blocks + 2);
  ModelBuilder builder(name, input, classes);
  ValueId x = builder.add("conv1", plain_convolution(stem, 3), ModelBuilder::input);
  x = builder.add("bn1", norm_relu, x);
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const bool halves = stage > 0 && block == 0;
      const std::string block_name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      x = add_cifar_block(builder, block_name, x, stem << stage, halves ? 2 : 1, halves);
    }
  }
  x = builder.add("avgpool", GlobalAveragePoolingLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

Model make_resnet18(tensor::Shape input, std::int64_t classes) {
  return make_resnet("resnet18", {}, {2, 2, 2, 2}, input, classes);
}
Model make_resnet34(tensor::Shape input, std::int64_t classes) {
  return make_resnet("resnet34", {}, {3, 4, 6, 3}, input, classes);
}
Model make_resnet50(tensor::Shape input, std::int64_t classes) {
  return make_resnet("resnet50", {.bottleneck = true}, {3, 4, 6, 3}, input, classes);
}
Model make_wide_resnet50_2(tensor::Shape input, std::int64_t classes) {
  return make_resnet("wide_resnet50_2", {.bottleneck = true, .width = 2}, {3, 4, 6, 3}, input,
                     classes);
}

}  // namespace rondo::train
