#include "base/whole_layers.hpp"

#include <stdexcept>
#include <string>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {

void expect_whole_layers(std::string_view who, const Replica& replica,
                         std::span<const Layer> layers) {
  for (const Layer& layer : layers) {
    const Groups& groups = layer.groups;
    if (groups.slice->size() != replica.world->size()) {
      throw std::invalid_argument(std::string(who) + ": layer " + layer.name +
                                  " is sharded; it must be whole on every rank");
    }
    if (groups.slice != layers.front().groups.slice) {
      throw std::invalid_argument(std::string(who) + ": layer " + layer.name +
                                  " has another slice group than layer " + layers.front().name);
    }
  }
}

}  // namespace rondo::sync
