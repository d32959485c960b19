#include "base/common_outer.hpp"

#include <stdexcept>
#include <string>

namespace rondo::sync {

transport::Communicator& common_outer(std::string_view scheme, const Replica& replica) {
  const std::string name(scheme);
  if (replica.layers.empty()) throw std::invalid_argument(name + ": the replica has no layers");
  transport::Communicator* outer = replica.layers.front().groups.outer;
  for (const Layer& layer : replica.layers) {
    if (layer.groups.outer == nullptr) {
      throw std::invalid_argument(name + ": layer " + layer.name + " has no outer group");
    }
    if (layer.groups.outer != outer) {
      throw std::invalid_argument(name + ": layer " + layer.name +
                                  " has another outer group than layer " +
                                  replica.layers.front().name + "; the scheme needs one for all");
    }
  }
  return *outer;
}

void expect_no_inner(std::string_view scheme, const Replica& replica) {
  for (const Layer& layer : replica.layers) {
    if (layer.groups.inner == nullptr) continue;
    throw std::invalid_argument(std::string(scheme) + ": layer " + layer.name +
                                " has an inner group; the scheme needs whole replicas");
  }
}

}  // namespace rondo::sync
