#include "base/tiled_update.hpp"

#include <algorithm>

#include <rondo/transport/world.hpp>

namespace rondo::sync {
namespace {

constexpr std::size_t tile = 256 * 1024;  // elements: 1 MiB

}  // namespace

void tiled_update(transport::World& world, Optimizer& optimizer, std::size_t offset,
                  std::span<float> parameters, std::span<const float> gradients,
                  const Update& update) {
  for (std::size_t done = 0; done < parameters.size(); done += tile) {
    const std::size_t size = std::min(tile, parameters.size() - done);
    optimizer.update(offset + done, parameters.subspan(done, size), gradients.subspan(done, size),
                     update);
    world.progress();
  }
}

}  // namespace rondo::sync
