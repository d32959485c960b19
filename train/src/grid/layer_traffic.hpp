#pragma once

#include <cstdint>
#include <vector>

#include <rondo/train/model.hpp>

#include "grid/lowering.hpp"

namespace rondo::train {

/// Elements that the ranks of a group send in one step for one layer, all together.
struct LayerTraffic {
  std::uint64_t forward = 0;
  std::uint64_t backward = 0;  ///< of activations; weight gradients are the update scheme's

  [[nodiscard]] std::uint64_t words() const noexcept { return forward + backward; }
};

/// Of every layer of the model, with the changes of layout before it; one behind the last layer is
/// that layer's. An allreduce of n elements over g ranks counts as 2 (g-1) n, an allgather as
/// (g-1) n, a reduce-scatter likewise. What batch norm shares over a group or all is left out: of C
/// channels 2 C + 1 doubles forward and 2 C backward.
[[nodiscard]] std::vector<LayerTraffic> traffic_of(const Model& model, const Lowering& lowering);

/// Elements that all ranks of a grid send for each layer in a step of `images`: traffic_of() of all
/// groups.
[[nodiscard]] std::vector<std::uint64_t> activation_words(const Model& model,
                                                          const std::vector<LayerSplit>& splits,
                                                          ProcessGrid grid, std::int64_t images);

/// Elements that all ranks of a grid send for each parameter group when its gradients meet over
/// everybody: 2 (g-1)/g of a slice by each of the g ranks that hold it.
[[nodiscard]] std::vector<std::uint64_t> gradient_words(const Model& model,
                                                        const std::vector<LayerSplit>& splits,
                                                        ProcessGrid grid);

}  // namespace rondo::train
