// DenseNet (Huang et al., 2017): every layer of a block reads the outputs of all layers before it,
// joined along their channels. Batch norm and ReLU stand in front of each convolution.
//
// A layer joins its result to what there was, so that each concatenation reads two values.

#include <array>
#include <string>

#include "model/zoo.hpp"

namespace rondo::train {
namespace {

ConvolutionLayer convolution(std::int64_t filters, std::int64_t kernel, std::int64_t stride = 1) {
  return {.filters = filters, .kernel = kernel, .stride = stride, .padding = kernel / 2};
}

/// Adds blocks and transitions; knows how many channels there are.
class DenseBuilder {
 public:
  DenseBuilder(ModelBuilder& builder, std::int64_t growth, std::int64_t bottleneck)
      : builder_(builder), growth_(growth), bottleneck_(bottleneck) {}

  [[nodiscard]] ValueId stem(const std::string& name, const ConvolutionLayer& layer) {
    channels_ = layer.filters;
    return builder_.add(name, layer, ModelBuilder::input);
  }

  [[nodiscard]] ValueId block(const std::string& name, std::int64_t layers, ValueId x) {
    for (std::int64_t i = 1; i <= layers; ++i) {
      const std::string layer = name + ".denselayer" + std::to_string(i);
      x = builder_.add(layer + ".concat", ConcatLayer{}, x, branch(layer, x));
      channels_ += growth_;
    }
    return x;
  }

  // Halves the image, and leaves so many channels.
  [[nodiscard]] ValueId transition(const std::string& name, std::int64_t channels, ValueId x) {
    channels_ = channels;
    x = builder_.add(name + ".norm", norm_relu, x);
    x = builder_.add(name + ".conv", convolution(channels, 1), x);
    return builder_.add(name + ".pool", PoolingLayer{.kind = tensor::PoolingKind::average}, x);
  }

  [[nodiscard]] std::int64_t channels() const noexcept { return channels_; }

 private:
  // New channels; with a bottleneck the 3x3 convolution reads so many times as many.
  [[nodiscard]] ValueId branch(const std::string& name, ValueId x) {
    x = builder_.add(name + ".norm1", norm_relu, x);
    if (bottleneck_ == 0) return builder_.add(name + ".conv1", convolution(growth_, 3), x);
    x = builder_.add(name + ".conv1", convolution(bottleneck_ * growth_, 1), x);
    x = builder_.add(name + ".norm2", norm_relu, x);
    return builder_.add(name + ".conv2", convolution(growth_, 3), x);
  }

  ModelBuilder& builder_;
  std::int64_t growth_;
  std::int64_t bottleneck_;
  std::int64_t channels_ = 0;
};

// A last batch norm, because those of a block stand in front of convolutions.
Model classify(ModelBuilder& builder, ValueId x, std::int64_t classes) {
  x = builder.add("features.norm5", norm_relu, x);
  x = builder.add("avgpool", GlobalAveragePoolingLayer{}, x);
  builder.add("classifier", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace

Model make_densenet40_12(tensor::Shape input, std::int64_t classes) {
  constexpr std::int64_t layers = 12;  // of each of three blocks
  ModelBuilder builder("densenet40_12", input, classes);
  DenseBuilder dense(builder, 12, 0);
  ValueId x = dense.stem("features.conv0", convolution(16, 3));
  x = dense.block("features.denseblock1", layers, x);
  x = dense.transition("features.transition1", dense.channels(), x);
  x = dense.block("features.denseblock2", layers, x);
  x = dense.transition("features.transition2", dense.channels(), x);
  x = dense.block("features.denseblock3", layers, x);
  return classify(builder, x, classes);
}

Model make_densenet121(tensor::Shape input, std::int64_t classes) {
  constexpr std::array<std::int64_t, 4> layers = {6, 12, 24, 16};
  ModelBuilder builder("densenet121", input, classes);
  DenseBuilder dense(builder, 32, 4);
  ValueId x = dense.stem("features.conv0", convolution(64, 7, 2));
  x = builder.add("features.norm0", norm_relu, x);
  x = builder.add("features.pool0", PoolingLayer{.window = 3, .stride = 2, .padding = 1}, x);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    x = dense.block("features.denseblock" + number, layers[i], x);
    if (i + 1 == layers.size()) break;
    x = dense.transition("features.transition" + number, dense.channels() / 2, x);
  }
  return classify(builder, x, classes);
}

}  // namespace rondo::train
