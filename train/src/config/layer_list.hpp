#pragma once

#include <span>
#include <string_view>

#include "config/assignment.hpp"

namespace rondo::train {

// The layers that the tables of [[model.layers]] describe. Throws ConfigError with the line and the
// layer: no kind, a key that is unknown or not the kind's, a value that its key cannot have.
[[nodiscard]] LayerList read_layers(std::span<const Assignment> tables);

// Fails when the experiment's model is described layer by layer, and its layers do not fit
// together. `assignments` are those that were applied, and `name` stands for the file's.
void check_layers(const Experiment& experiment, std::span<const Assignment> assignments,
                  std::string_view name);

}  // namespace rondo::train
