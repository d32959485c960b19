#include "executor/program.hpp"

#include "executor/accounted_memory.hpp"

namespace rondo::train {

WholeModel::WholeModel(tensor::Engine& engine, const Model& model)
    : engine_(engine), model_(model), graph_(graph_of(model)), layout_(layout_of(model)) {}

BatchPlan WholeModel::plan(std::int64_t images, KernelPurpose purpose) {
  BatchPlan plan{.images = images, .shapes = shapes_of(model_, images), .judged = {0, images}};
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const LayerSpec& layer = model_.layers[i];
    const MemoryScope scope(engine_.memory(), "layer " + layer.name);
    plan.kernels.push_back(make_layer_kernel(engine_, layer.kind, plan.shapes[layer.inputs[0]],
                                             has_gradient(graph_, layer.inputs[0]), purpose));
  }
  return plan;
}

std::vector<std::int64_t> WholeModel::sizes(std::int64_t images) const {
  return sizes_of(shapes_of(model_, images));
}

}  // namespace rondo::train
