#pragma once

#include <cstddef>
#include <span>

#include <rondo/sync/optimizer.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::sync {

/// As optimizer.update(), of the range from `offset` on, and looks between parts of it after what
/// still travels.
void tiled_update(transport::World& world, Optimizer& optimizer, std::size_t offset,
                  std::span<float> parameters, std::span<const float> gradients,
                  const Update& update);

}  // namespace rondo::sync
