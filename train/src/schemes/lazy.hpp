#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <rondo/sync/lazy.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>

#include "config/combinations.hpp"

namespace rondo::transport {
class World;
}  // namespace rondo::transport

namespace rondo::train {

/// Which layers of a model are lazy: convolutions from the input on, each with its bias and the
/// batch norm behind it.
struct LazyPlan {
  std::size_t layers = 0;                ///< parameter blocks from the input side
  std::vector<sync::Probe> probes = {};  ///< the weights of the convolutions
  std::vector<std::string> names = {};   ///< of the convolutions
};

/// The plan for a count or a fraction of the model's convolutions, where the latter is rounded,
/// but not to none. Throws ConfigError when there are not so many.
///
/// For "auto", the convolutions among the first `unhidden` parameter blocks, one at least.
[[nodiscard]] LazyPlan plan_lazy_layers(const Model& model, const LazyLayers& choice,
                                        std::size_t unhidden = 0);

/// The same for a rank that holds the model's parameters as `layout` says.
[[nodiscard]] LazyPlan plan_lazy_layers(const Model& model, const ParameterLayout& layout,
                                        const LazyLayers& choice, std::size_t unhidden = 0);

/// Measures how many parameter blocks, from the input side, backward cannot hide the reduction
/// of: a few passes over `batch`, and a few allreduces of each block. Rank 0's times decide for
/// all; gradients are sent as `gradient_type`. Parameters and statistics are as before afterwards,
/// gradients are zero. Collective.
[[nodiscard]] std::size_t measure_unhidden_layers(transport::World& world, Executor& executor,
                                                  const Batch& batch,
                                                  std::span<const sync::Layer> layers,
                                                  const ModelState& state,
                                                  tensor::DataType gradient_type);

}  // namespace rondo::train
