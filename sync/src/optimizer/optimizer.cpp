#include <rondo/sync/optimizer.hpp>

#include <algorithm>

namespace rondo::sync {

Optimizer::~Optimizer() = default;

void Optimizer::preview(std::size_t offset, std::span<float> parameters,
                        std::span<const float> gradients, const Update& update) {
  const std::vector<float> before(state().begin(), state().end());
  this->update(offset, parameters, gradients, update);
  std::ranges::copy(before, state().begin());
}

}  // namespace rondo::sync
