#include "executor/batch_plan.hpp"

namespace rondo::train {

BatchPlan make_batch_plan(tensor::Engine& engine, const Model& model, std::int64_t images) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, images);
  BatchPlan plan{.images = images};
  for (const LayerSpec& layer : model.layers) {
    plan.kernels.push_back(make_layer_kernel(engine, layer, shapes[layer.inputs[0]]));
  }
  return plan;
}

BatchPlan make_batch_plan(const BatchPlan& other, std::int64_t images) {
  BatchPlan plan{.images = images};
  for (const std::unique_ptr<LayerKernel>& kernel : other.kernels) {
    plan.kernels.push_back(kernel->for_images(images));
  }
  return plan;
}

}  // namespace rondo::train
