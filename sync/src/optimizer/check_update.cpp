#include "optimizer/check_update.hpp"

#include <stdexcept>
#include <string>

#include "flat/range.hpp"

namespace rondo::sync {

void check_update(std::string_view name, std::size_t offset, std::span<const float> parameters,
                  std::span<const float> gradients, std::size_t size) {
  if (parameters.size() != gradients.size()) {
    throw std::invalid_argument(std::string(name) + ": update of " +
                                std::to_string(parameters.size()) + " parameters by " +
                                std::to_string(gradients.size()) + " gradients");
  }
  flat::check_range(name, offset, parameters.size(), size);
}

}  // namespace rondo::sync
