#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <rondo/sync/lazy.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>

#include "config/combinations.hpp"

namespace rondo::train {

/// Which layers of a model are lazy: convolutions from the input on, each with its bias and the
/// batch norm behind it.
struct LazyPlan {
  std::size_t layers = 0;                ///< parameter groups from the input side
  std::vector<sync::Probe> probes = {};  ///< the weights of the convolutions
  std::vector<std::string> names = {};   ///< of the convolutions
};

/// The plan for a count or a fraction of the model's convolutions, where the latter is rounded,
/// but not to none. Throws ConfigError when there are not so many.
///
/// For "auto", the convolutions among the first `unhidden` parameter groups, one at least.
[[nodiscard]] LazyPlan plan_lazy_layers(const Model& model, const LazyLayers& choice,
                                        std::size_t unhidden = 0);

/// The same for a rank that holds the model's parameters as `layout` says.
[[nodiscard]] LazyPlan plan_lazy_layers(const Model& model, const ParameterLayout& layout,
                                        const LazyLayers& choice, std::size_t unhidden = 0);

}  // namespace rondo::train
