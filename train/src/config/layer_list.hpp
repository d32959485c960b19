#pragma once

#include <span>
#include <string_view>

#include <rondo/train/experiment.hpp>

#include "config/assignment.hpp"
#include "config/key.hpp"

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

// The layers that the tables of [[model.layers]] describe. Throws ConfigError with the line and the
// layer: no kind, a key that is unknown or not the kind's, a value that its key cannot have.
[[nodiscard]] LayerList read_layers(std::span<const Assignment> tables);

// Fails when the experiment's model is described layer by layer, and its layers do not fit
// together. `assignments` are those that were applied, and `name` stands for the file's.
void check_layers(const Experiment& experiment, std::span<const Assignment> assignments,
                  std::string_view name);

}  // namespace rondo::train
