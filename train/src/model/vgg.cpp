#include "model/vgg.hpp"

#include <array>
#include <string>

#include "model/model_builder.hpp"

namespace rondo::train {
namespace {

constexpr std::array<std::int64_t, 5> filters = {64, 128, 256, 512, 512};

using Convolutions = std::array<int, filters.size()>;  // of each stage
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

Model make_vgg(const char* name, const Convolutions& convolutions, Norm norm, tensor::Shape input,
               std::int64_t classes) {
  ModelBuilder builder(name, input, classes);
  Features features(builder, norm);
  ValueId x = ModelBuilder::input;
  for (std::size_t stage = 0; stage < filters.size(); ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) x = features.add_convolution(filters[stage], x);
    x = features.add_pooling(x);
  }
  x = builder.add("classifier.0", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  x = builder.add("classifier.3", FullyConnectedLayer{.outputs = 4096, .activation = relu}, x);
  builder.add("classifier.6", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

}  // namespace

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
