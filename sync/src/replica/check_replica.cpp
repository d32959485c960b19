#include "replica/check_replica.hpp"

#include <stdexcept>

namespace rondo::sync {
namespace {

void check_slices(const Slices& slices, std::size_t size) {
  std::size_t end = 0;
  for (const Slices::Part& part : slices.counted) {
    if (part.offset < end || part.offset > size || part.size > size - part.offset) {
      throw std::invalid_argument("replica: it counts " + std::to_string(part.size) +
                                  " elements from " + std::to_string(part.offset) +
                                  " on, which are out of order or not there");
    }
    end = part.offset + part.size;
  }
}

}  // namespace

void check_replica(const Replica& replica) {
  if (replica.world == nullptr) throw std::invalid_argument("replica: no world was given");
  const std::size_t size = replica.parameters.size();
  if (replica.gradients.size() != size) {
    throw std::invalid_argument("replica: " + std::to_string(size) + " parameters, but " +
                                std::to_string(replica.gradients.size()) + " gradients");
  }
  check_slices(replica.slices, size);
  std::size_t end = 0;
  for (const Layer& layer : replica.layers) {
    if (layer.offset != end) {
      throw std::invalid_argument("replica: layer " + layer.name + " begins at " +
                                  std::to_string(layer.offset) + ", the one before it ends at " +
                                  std::to_string(end));
    }
    if (layer.groups.slice == nullptr) {
      throw std::invalid_argument("replica: layer " + layer.name + " has no slice group");
    }
    end += layer.size;
  }
  if (end != size) {
    throw std::invalid_argument("replica: layers cover " + std::to_string(end) + " of " +
                                std::to_string(size) + " parameters");
  }
}

}  // namespace rondo::sync
