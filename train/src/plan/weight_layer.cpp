#include "plan/weight_layer.hpp"

namespace rondo::train {
namespace {

// Only convolutions and fully connected layers have weights that a grid splits.
template <typename Kind>
constexpr bool is_weighted = false;
template <>
constexpr bool is_weighted<ConvolutionLayer> = true;
template <>
constexpr bool is_weighted<FullyConnectedLayer> = true;

// A fully connected layer sees its input as one pixel.
WeightLayer describe(const FullyConnectedLayer& layer, const tensor::Shape& x,
                     const tensor::Shape& y) {
  return {.fully_connected = true,
          .weights = x.image() * layer.outputs,
          .x = {1, 1, 1, x.image()},
          .y = y};
}

WeightLayer describe(const ConvolutionLayer& layer, const tensor::Shape& x,
                     const tensor::Shape& y) {
  return {.weights = layer.kernel * layer.kernel * x.c * layer.filters,
          .kernel = layer.kernel,
          .x = x,
          .y = y};
}

}  // namespace

std::vector<WeightLayer> weight_layers(const Model& model) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  std::vector<WeightLayer> layers;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& spec = model.layers[i];
    std::visit(
        [&]<typename Kind>(const Kind& kind) {
          if constexpr (is_weighted<Kind>) {
            WeightLayer layer = describe(kind, shapes[spec.inputs[0]], shapes[i + 1]);
            layer.name = spec.name;
            layer.first = layers.empty();
            layer.inputs = layer.x.image();
            layer.outputs = layer.y.image();
            layers.push_back(std::move(layer));
          }
        },
        spec.kind);
  }
  return layers;
}

}  // namespace rondo::train
