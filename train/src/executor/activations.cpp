#include "executor/activations.hpp"

namespace rondo::train {

Activations::Activations(tensor::Engine& engine, const Model& model, const BackwardPlan& plan,
                         std::int64_t images)
    : shapes_(shapes_of(model, 1)) {
  for (std::size_t value = 1; value < shapes_.size(); ++value) {
    values_.emplace_back(shapes_[value].with_n(images), engine.memory());
  }
  for (const std::int64_t elements : plan.elements) {
    gradients_.emplace_back(tensor::Shape{images, 1, 1, elements}, engine.memory());
  }
}

tensor::View<const float> Activations::read(ValueId value, const float* input,
                                            std::int64_t images) const {
  const tensor::Shape shape = shapes_[value].with_n(images);
  return {value == 0 ? input : values_[value - 1].data(), shape};
}

tensor::View<float> Activations::write(ValueId value, std::int64_t images) {
  return {values_[value - 1].data(), shapes_[value].with_n(images)};
}

tensor::View<float> Activations::gradient(BufferId buffer, ValueId value, std::int64_t images) {
  return {gradients_[buffer].data(), shapes_[value].with_n(images)};
}

}  // namespace rondo::train
