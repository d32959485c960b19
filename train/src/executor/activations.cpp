#include "executor/activations.hpp"

#include <algorithm>

#include "executor/accounted_memory.hpp"

namespace rondo::train {
namespace {

// Never empty: a view of no elements still has an address, which says that it is there.
tensor::Tensor make(tensor::Engine& engine, std::int64_t elements) {
  return tensor::Tensor({1, 1, 1, std::max<std::int64_t>(elements, 1)}, engine.memory());
}

}  // namespace

Activations::Activations(tensor::Engine& engine, const std::vector<std::int64_t>& sizes,
                         const BackwardPlan& backward, const std::vector<std::string>& writers) {
  for (std::size_t value = 1; value < sizes.size(); ++value) {
    const MemoryScope scope(engine.memory(), "the output of " + writers[value - 1]);
    values_.push_back(make(engine, sizes[value]));
  }
  const MemoryScope scope(engine.memory(), "a gradient of activations");
  for (const std::int64_t elements : backward.elements) {
    gradients_.push_back(make(engine, elements));
  }
}

tensor::View<const float> Activations::read(ValueId value, const float* input,
                                            const BatchPlan& plan) const {
  return {value == 0 ? input : values_[value - 1].data(), plan.shapes[value]};
}

tensor::View<float> Activations::write(ValueId value, const BatchPlan& plan) {
  return {values_[value - 1].data(), plan.shapes[value]};
}

tensor::View<float> Activations::gradient(BufferId buffer, ValueId value, const BatchPlan& plan) {
  return {gradients_[buffer].data(), plan.shapes[value]};
}

}  // namespace rondo::train
