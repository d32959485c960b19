#include <rondo/sync/optimizer.hpp>

#include <algorithm>

#include "optimizer/check_update.hpp"

namespace rondo::sync {

Optimizer::~Optimizer() = default;

// Only the range's part of each array of the state can change.
void Optimizer::preview(std::size_t offset, std::span<float> parameters,
                        std::span<const float> gradients, const Update& update) {
  check_update("preview", offset, parameters, gradients, size());
  const std::span<float> arrays = state();
  const std::size_t count = parameters.size();
  std::vector<float> before;
  for (std::size_t first = offset; first < arrays.size(); first += size()) {
    const auto part = arrays.subspan(first, count);
    before.insert(before.end(), part.begin(), part.end());
  }
  this->update(offset, parameters, gradients, update);
  auto kept = std::span<const float>(before);
  for (std::size_t first = offset; first < arrays.size(); first += size()) {
    std::ranges::copy(kept.first(count), arrays.subspan(first).begin());
    kept = kept.subspan(count);
  }
}

}  // namespace rondo::sync
