#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "config/key.hpp"
#include "config/value.hpp"

namespace rondo::train {

// One key of a table of [[model.layers]].
struct LayerKey {
  std::string_view name;
  Value (*get)(const Experiment::Layer& layer);
  void (*set)(Experiment::Layer& layer, const Value& value);
  Limits limits = {};
};

// In the order in which to_toml_value() writes them; `kind` is the first.
[[nodiscard]] std::span<const LayerKey> layer_keys();

// Has a layer of this kind the key?
[[nodiscard]] bool belongs_to(const LayerKey& key, std::string_view kind);
// Must a layer of this kind be given it?
[[nodiscard]] bool is_required(const LayerKey& key, std::string_view kind);

}  // namespace rondo::train
