#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/partition.hpp>

#include "executor/graph.hpp"
#include "layers/layer_type.hpp"

namespace rondo::train {

/// A model as the ranks of a replica run it together: its layers, and a change of layout wherever a
/// layer reads a value otherwise than it was written.
struct Lowering {
  Graph graph = {};
  std::vector<NodeLayout> layouts = {};  ///< of every node
  std::vector<Partition> values = {};    ///< of every value; value 0 is the replica's batch
};

/// `splits` has an entry for every layer of the model; those of convolutions and fully connected
/// layers count. `images` are the replica's. A change of layout that two readers want is made once.
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

/// The parameters and statistics of `model` that rank `rank` of a replica holds, as layout_of() but
/// for what is cut: of a convolution by channel its filters and channels, of a fully connected
/// layer by channel its outputs, of batch norm its channels.
[[nodiscard]] ParameterLayout layout_of(const Model& model, const Lowering& lowering, int rank);

/// The same as slices_in_replica() of the splits that were lowered, for `ranks` in a replica.
[[nodiscard]] std::vector<int> slices_in_replica(const Model& model, const Lowering& lowering,
                                                 int ranks);

/// The traffic of every layer, with the changes of layout before it; one behind the last layer
/// counts for that layer. An allreduce of n elements over g ranks counts as 2 (g-1) n, an allgather
/// as (g-1) n, a reduce-scatter likewise. The statistics that batch norm shares over a replica or
/// all are left out: for C channels 2 C + 1 doubles forward and 2 C backward.
[[nodiscard]] std::vector<LayerTraffic> traffic_of(const Model& model, const Lowering& lowering);

/// Bytes that all ranks of a grid send for each layer in a step of `images`: traffic_of() of all
/// replicas, where activations are of `type`.
[[nodiscard]] std::vector<std::uint64_t> activation_bytes(const Model& model,
                                                          const std::vector<LayerSplit>& splits,
                                                          ProcessGrid grid, std::int64_t images,
                                                          tensor::DataType type);

/// Elements that all ranks of a grid send for each parameter block when its gradients meet over
/// everybody: 2 (g-1)/g of a slice by each of the g ranks that hold it.
[[nodiscard]] std::vector<std::uint64_t> gradient_elements(const Model& model,
                                                           const std::vector<LayerSplit>& splits,
                                                           ProcessGrid grid);

/// The memory that the kernel of node `node` allocates on rank `rank` of a replica that trains
/// together, also for messages.
[[nodiscard]] tensor::KernelMemory memory_of_node(KernelMemories& kernels, const Model& model,
                                                  const Lowering& lowering, std::size_t node,
                                                  int rank, BatchNormScope statistics,
                                                  tensor::DataType type);

}  // namespace rondo::train
