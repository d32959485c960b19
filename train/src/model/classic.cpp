// LeNet, AlexNet and VGG: chains of convolutions, poolings and fully connected layers. Names of
// layers are those that torchvision gives (alexnet-2012: Caffe), so that parameters can be
// exchanged.

#include <array>
#include <string>

#include "model/zoo.hpp"

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

// AlexNet's windows overlap: they are wider than the stride.
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

constexpr std::array<std::int64_t, 5> vgg_filters = {64, 128, 256, 512, 512};

using Convolutions = std::array<int, vgg_filters.size()>;  // of each stage
constexpr Convolutions vgg11 = {1, 1, 2, 2, 2};
constexpr Convolutions vgg16 = {2, 2, 3, 3, 3};

enum class Norm : std::uint8_t { none, batch };

// torchvision numbers all modules of `features`, ReLU and pooling included.
class Features {
 public:
  Features(ModelBuilder& builder, Norm norm) : builder_(builder), norm_(norm) {}

  [[nodiscard]] ValueId add_convolution(std::int64_t count, ValueId x) {
    const bool batch_norm = norm_ == Norm::batch;
    const ConvolutionLayer layer{
        .filters = count, .bias = true, .activation = batch_norm ? tensor::Activation::none : relu};
    x = builder_.add(next_name(), layer, x);
    if (batch_norm) x = builder_.add(next_name(), BatchNormLayer{}, x);
    ++module_;  // the ReLU
    return x;
  }

  [[nodiscard]] ValueId add_pooling(ValueId x) {
    return builder_.add(next_name(), PoolingLayer{}, x);
  }

 private:
  std::string next_name() { return "features." + std::to_string(module_++); }

  ModelBuilder& builder_;
  Norm norm_;
  int module_ = 0;
};

// torchvision's classifier has a ReLU and a dropout as modules of their own, hence the gaps in the
// numbers.
Model make_vgg(const char* name, const Convolutions& convolutions, Norm norm, tensor::Shape input,
               std::int64_t classes) {
  ModelBuilder builder(name, input, classes);
  Features features(builder, norm);
  ValueId x = ModelBuilder::input;
  for (std::size_t stage = 0; stage < vgg_filters.size(); ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i)
      x = features.add_convolution(vgg_filters[stage], x);
    x = features.add_pooling(x);
  }
  x = builder.add("classifier.0", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  x = builder.add("classifier.2", DropoutLayer{}, x);
  x = builder.add("classifier.3", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  x = builder.add("classifier.5", DropoutLayer{}, x);
  builder.add("classifier.6", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace

// LeCun et al., 1998, with ReLU and maxima instead of the sigmoids and averages of then, as it is
// taught today.
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

// The network of Krizhevsky's "One weird trick" (2014), which torchvision has.
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
  x = builder.add("classifier.0", DropoutLayer{}, x);
  x = builder.add("classifier.1", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  x = builder.add("classifier.3", DropoutLayer{}, x);
  x = builder.add("classifier.4", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  builder.add("classifier.6", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

// The network of the ImageNet paper (Krizhevsky et al., 2012), as Caffe has it but without groups
// and local response normalisation: the published plans of parallel training are for its layers.
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

Model make_vgg11(tensor::Shape input, std::int64_t classes) {
  return make_vgg("vgg11", vgg11, Norm::none, input, classes);
}
Model make_vgg11_bn(tensor::Shape input, std::int64_t classes) {
  return make_vgg("vgg11_bn", vgg11, Norm::batch, input, classes);
}
Model make_vgg16(tensor::Shape input, std::int64_t classes) {
  return make_vgg("vgg16", vgg16, Norm::none, input, classes);
}
Model make_vgg16_bn(tensor::Shape input, std::int64_t classes) {
  return make_vgg("vgg16_bn", vgg16, Norm::batch, input, classes);
}

}  // namespace rondo::train
