#include "trainer/lazy_plan.hpp"

#include <algorithm>
#include <cmath>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

/// A convolution that can be lazy, and how many groups are so if it is the last one.
struct Candidate {
  std::string name = {};
  sync::Probe weights = {};
  std::size_t group = 0;
  std::size_t groups = 0;
};

sync::Probe weights_of(const ParameterLayout& layout, const std::string& layer) {
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.name == layer + ".weight") return {parameter.offset, parameter.size()};
  }
  return {};
}

/// Up to the first layer with parameters that is neither a convolution nor its batch norm.
std::vector<Candidate> candidates_of(const Model& model, const ParameterLayout& layout) {
  std::vector<Candidate> candidates;
  std::size_t group = 0;
  for (std::size_t i = 0; i < model.layers.size() && group < layout.blocks.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    if (layout.blocks[group].name != layer.name) continue;  // it learns nothing
    if (is_convolution(layer)) {
      candidates.push_back({layer.name, weights_of(layout, layer.name), group, group + 1});
    } else if (layer.kind->traits().batch_statistics && !candidates.empty()) {
      candidates.back().groups = group + 1;
    } else {
      break;
    }
    ++group;
  }
  return candidates;
}

std::size_t count_of(const std::vector<Candidate>& candidates, const LazyLayers& choice,
                     std::size_t unhidden) {
  switch (choice.kind) {
    case LazyLayers::Kind::count:
      return static_cast<std::size_t>(choice.number);
    case LazyLayers::Kind::fraction: {
      const double share = choice.number * static_cast<double>(candidates.size());
      return share == 0.0 ? 0 : static_cast<std::size_t>(std::max(1.0, std::round(share)));
    }
    case LazyLayers::Kind::automatic:
      break;
  }
  const auto among = std::ranges::count_if(
      candidates, [&](const Candidate& candidate) { return candidate.group < unhidden; });
  return std::max<std::size_t>(1, static_cast<std::size_t>(among));
}

}  // namespace

LazyPlan plan_lazy_layers(const Model& model, const LazyLayers& choice, std::size_t unhidden) {
  return plan_lazy_layers(model, layout_of(model), choice, unhidden);
}

LazyPlan plan_lazy_layers(const Model& model, const ParameterLayout& layout,
                          const LazyLayers& choice, std::size_t unhidden) {
  const std::vector<Candidate> candidates = candidates_of(model, layout);
  const std::size_t count = count_of(candidates, choice, unhidden);
  if (count > candidates.size()) {
    throw ConfigError("update.lazy_layers: " + model.name + " has " +
                      std::to_string(candidates.size()) +
                      " convolutions that can be lazy, and not " + std::to_string(count));
  }
  LazyPlan plan;
  for (std::size_t i = 0; i < count; ++i) {
    plan.layers = candidates[i].groups;
    plan.probes.push_back(candidates[i].weights);
    plan.names.push_back(candidates[i].name);
  }
  return plan;
}

}  // namespace rondo::train
