#include "flat/range.hpp"

#include <stdexcept>
#include <string>

namespace rondo::sync::flat {

void check_range(std::string_view name, std::size_t offset, std::size_t count, std::size_t size) {
  if (offset <= size && count <= size - offset) return;
  throw std::invalid_argument(std::string(name) + ": " + std::to_string(count) + " elements from " +
                              std::to_string(offset) + " on do not fit an array of " +
                              std::to_string(size));
}

}  // namespace rondo::sync::flat
