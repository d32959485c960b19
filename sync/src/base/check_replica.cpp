#include "base/check_replica.hpp"

#include <stdexcept>
#include <string>

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

const Replica& checked_replica(const Replica& replica) {
  check_replica(replica);
  return replica;
}

std::shared_ptr<Optimizer> checked_optimizer(std::string_view scheme, const Replica& replica,
                                             std::shared_ptr<Optimizer> optimizer) {
  const std::string name(scheme);
  if (optimizer == nullptr) throw std::invalid_argument(name + ": no optimizer was given");
  if (optimizer->size() != replica.parameters.size()) {
    throw std::invalid_argument(
        name + ": the optimizer is for " + std::to_string(optimizer->size()) +
        " parameters, the replica has " + std::to_string(replica.parameters.size()));
  }
  return optimizer;
}

void expect_copy_of(const Replica& replica, std::string_view scheme,
                    std::span<const float> parameters, std::span<const float> statistics) {
  if (parameters.size() == replica.parameters.size() &&
      statistics.size() == replica.statistics.size()) {
    return;
  }
  throw std::invalid_argument(std::string(scheme) +
                              ": the evaluation copy's sizes are not the replica's");
}

}  // namespace rondo::sync
