#pragma once

#include <rondo/train/partition.hpp>

namespace rondo::train {

/// Samples over the replicas, rows and columns of the image over the ranks of a replica.
inline Partition by_space(tensor::Shape extents, ProcessGrid grid, int h_parts, int w_parts) {
  return on_grid(extents, grid, {.h = h_parts, .w = w_parts});
}

}  // namespace rondo::train
