#pragma once

#include <memory_resource>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/layer_split.hpp>
#include <rondo/train/partition.hpp>

#include "grid/grid_communicators.hpp"

namespace rondo::train {

/// One layer on a grid for one number of samples: how the ranks hold what it reads and writes.
///
/// Gradients lie as their values do, and are complete sums wherever they lie: a rank that holds a
/// copy of a value holds the whole gradient of what it holds.
struct GridLayer {
  LayerSplit split = {};
  Partition x;
  Partition y;
};

/// What kernels on a grid share; all lent.
struct GridContext {
  tensor::Engine& engine;
  GridCommunicators& communicators;
  std::pmr::memory_resource* memory = nullptr;  ///< for what travels: the World's arena
  /// Null, or the ranks in this rank's place in other groups, whose batch norm shares statistics
  /// with this one's where they are BatchNormGroup::all.
  transport::Communicator* across = nullptr;
};

}  // namespace rondo::train
