#pragma once

#include <memory_resource>
#include <vector>

#include <rondo/train/export.hpp>
#include <rondo/train/layer_split.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>

namespace rondo::transport {
class Communicator;
}

namespace rondo::train {

/// One rank's place in a group of ranks that split a model's layers among themselves. The group has
/// a batch of its own; other groups have other samples. All is lent.
struct GridPart {
  transport::Communicator* group = nullptr;
  /// The ranks of this position in all groups, of which kernels use this communicator alone. Only
  /// for BatchNormGroup::all.
  transport::Communicator* across = nullptr;
  std::vector<LayerSplit> splits = {};  ///< one per layer of the model
  BatchNormGroup batch_norm = BatchNormGroup::rank;
  /// For what travels between ranks: the World's arena.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

/// The parameters and statistics that rank `rank` of a group of `ranks` holds: as layout_of(model),
/// but for parameters that are cut. Throws std::invalid_argument where a split does not fit.
[[nodiscard]] RONDO_TRAIN_API ParameterLayout layout_of(const Model& model,
                                                        const std::vector<LayerSplit>& splits,
                                                        int ranks, int rank);

/// For every parameter group: do the ranks of a group hold the same parameters, and gradients that
/// are sums over samples or pixels of their own, so that they add up over the group? Otherwise each
/// holds other parameters, or the same gradients as the others.
[[nodiscard]] RONDO_TRAIN_API std::vector<bool> adds_up_in_group(
    const Model& model, const std::vector<LayerSplit>& splits, int ranks);

}  // namespace rondo::train
