#include "executor/graph.hpp"

#include "model/layer_traits.hpp"

namespace rondo::train {

bool has_gradient(const Graph& graph, ValueId value) {
  if (value == model_input) return false;
  const GraphNode& writer = graph.nodes[value - 1];
  return writer.layer || has_gradient(graph, writer.inputs[0]);
}

Graph graph_of(const Model& model) {
  Graph graph;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    graph.nodes.push_back(
        {.layer = i, .inputs = layer.inputs, .batch_norm = traits_of(layer.kind).batch_statistics});
  }
  return graph;
}

std::vector<std::int64_t> sizes_of(const std::vector<tensor::Shape>& shapes) {
  std::vector<std::int64_t> sizes;
  for (const tensor::Shape& shape : shapes) sizes.push_back(shape.size());
  return sizes;
}

}  // namespace rondo::train
