#include "plan/weight_layer.hpp"

#include <utility>

#include "layers/layer_type.hpp"

namespace rondo::train {
std::vector<WeightLayer> weight_layers(const Model& model) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  std::vector<WeightLayer> layers;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& spec = model.layers[i];
    if (!has_weights(spec)) continue;
    const tensor::Shape& x = shapes[spec.inputs[0]];
    WeightLayer layer{.weights = spec.kind->weights(x), .x = x, .y = shapes[i + 1]};
    if (const auto windows = spec.kind->windows()) layer.kernel = windows->h.kernel;
    if (is_fully_connected(spec)) {  // it sees its input as one pixel
      layer.fully_connected = true;
      layer.x = {1, 1, 1, x.image()};
    }
    layer.name = spec.name;
    layer.first = layers.empty();
    layer.inputs = layer.x.image();
    layer.outputs = layer.y.image();
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace rondo::train
