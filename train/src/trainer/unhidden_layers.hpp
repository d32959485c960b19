#pragma once

#include <cstddef>
#include <span>

#include <rondo/sync/replica.hpp>
#include <rondo/train/batch.hpp>
#include <rondo/train/executor.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// Measures how many parameter groups, from the input side, backward cannot hide the reduction
/// of: a few passes over `batch`, and a few allreduces of each group. Rank 0's times decide for
/// all. Parameters and statistics are as before afterwards, gradients are zero. Collective.
[[nodiscard]] std::size_t measure_unhidden_layers(transport::World& world, Executor& executor,
                                                  const Batch& batch,
                                                  std::span<const sync::Layer> layers,
                                                  const ModelState& state);

}  // namespace rondo::train
