#pragma once

#include <memory_resource>
#include <vector>

#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::transport {
class Communicator;
}

namespace rondo::train {

/// One rank's part in a replica, whose ranks split a model's layers among themselves. The replica
/// has a batch of its own; other replicas have other samples. All is lent.
struct GridPart {
  transport::Communicator* replica = nullptr;
  /// The ranks of this position in all replicas, of which kernels use this communicator alone. Only
  /// for BatchNormScope::all.
  transport::Communicator* across = nullptr;
  std::vector<LayerSplit> splits = {};  ///< one per layer of the model
  BatchNormScope batch_norm = BatchNormScope::rank;
  /// For what travels between ranks: the World's arena.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

/// The parameters and statistics that rank `rank` of a replica of `ranks` holds: as
/// layout_of(model), but for parameters that are cut. Throws std::invalid_argument where a split
/// does not fit.
[[nodiscard]] RONDO_TRAIN_API ParameterLayout layout_of(const Model& model,
                                                        const std::vector<LayerSplit>& splits,
                                                        int ranks, int rank);

/// For every parameter block a number of slices. Ranks of a replica whose positions are equal
/// modulo that number hold the same parameters, and gradients that are sums over samples or pixels
/// of their own, so that they add up over these ranks: over all of the replica if it is 1. If it is
/// `ranks`, nothing adds up: each rank holds other parameters, or the same gradients as the others.
[[nodiscard]] RONDO_TRAIN_API std::vector<int> slices_in_replica(
    const Model& model, const std::vector<LayerSplit>& splits, int ranks);

}  // namespace rondo::train
