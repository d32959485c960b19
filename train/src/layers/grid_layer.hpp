#pragma once

#include <rondo/train/layer_split.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

/// How ranks hold what a node reads and writes. A change of layout reads `x` and writes `y`, of the
/// same array; a layer's residual lies as its x.
///
/// Gradients lie as their values do, and are complete sums wherever they lie: a rank that holds a
/// copy of a value holds the whole gradient of what it holds.
struct GridLayer {
  LayerSplit split = {};
  Partition x;
  Partition y;
};

}  // namespace rondo::train
