#include "plan/weight_layer.hpp"

#include <optional>
#include <utility>
#include <variant>

namespace rondo::train {
namespace {

// Only convolutions and fully connected layers have weights that a grid splits.
class WeightDescriber {
 public:
  WeightDescriber(const tensor::Shape& x, const tensor::Shape& y) : x_(x), y_(y) {}

  std::optional<WeightLayer> operator()(const ConvolutionLayer& layer) const {
    return WeightLayer{.weights = layer.kernel * layer.kernel * x_.c * layer.filters,
                       .kernel = layer.kernel,
                       .x = x_,
                       .y = y_};
  }
  // A fully connected layer sees its input as one pixel.
  std::optional<WeightLayer> operator()(const FullyConnectedLayer& layer) const {
    return WeightLayer{.fully_connected = true,
                       .weights = x_.image() * layer.outputs,
                       .x = {1, 1, 1, x_.image()},
                       .y = y_};
  }
  std::optional<WeightLayer> operator()(const BatchNormLayer& /*layer*/) const { return {}; }
  std::optional<WeightLayer> operator()(const PoolingLayer& /*layer*/) const { return {}; }
  std::optional<WeightLayer> operator()(const GlobalAveragePoolingLayer& /*layer*/) const {
    return {};
  }

 private:
  const tensor::Shape& x_;
  const tensor::Shape& y_;
};

}  // namespace

std::vector<WeightLayer> weight_layers(const Model& model) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  std::vector<WeightLayer> layers;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& spec = model.layers[i];
    std::optional<WeightLayer> layer =
        std::visit(WeightDescriber(shapes[spec.inputs[0]], shapes[i + 1]), spec.kind);
    if (!layer) continue;
    layer->name = spec.name;
    layer->first = layers.empty();
    layer->inputs = layer->x.image();
    layer->outputs = layer->y.image();
    layers.push_back(*std::move(layer));
  }
  return layers;
}

}  // namespace rondo::train
