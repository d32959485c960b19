#pragma once

#include <cstdint>
#include <vector>

#include <rondo/tensor/shape.hpp>
#include <rondo/train/layer_split.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>

#include "executor/graph.hpp"
#include "layers/grid_layer.hpp"

namespace rondo::train {

/// A model as the ranks of a group run it together: its layers, and a change of layout wherever a
/// layer reads a value otherwise than it was written.
struct Lowering {
  Graph graph = {};
  std::vector<GridLayer> layouts = {};  ///< of every node
  std::vector<Partition> values = {};   ///< of every value; value 0 is the group's batch
};

/// `splits` has an entry for every layer of the model; those of convolutions and fully connected
/// layers count. `images` are the group's. A change of layout that two readers want is made once.
///
/// - The model's input lies as its first reader wants it.
/// - Batch norm, pooling and global average pooling follow what they read; after global average
///   pooling in space all ranks hold the result.
/// - The logits lie by sample, or all ranks hold them.
///
/// Throws std::invalid_argument that names the layer where a split does not fit: not as many parts
/// as ranks, or rows and columns of a fully connected layer.
[[nodiscard]] Lowering lower(const Model& model, const std::vector<LayerSplit>& splits, int ranks,
                             std::int64_t images);

}  // namespace rondo::train
