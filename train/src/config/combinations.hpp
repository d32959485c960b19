#pragma once

#include <string>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/experiment.hpp>

#include "config/key.hpp"

namespace rondo::train {

// The description of the scheme that [update] names. Throws ConfigError when none has that name.
[[nodiscard]] const sync::SchemeDescription& scheme_of(const Experiment::Update& update);

// Synchronous epochs before the scheme begins, where [update] warmup_epochs leaves it to the
// scheme.
[[nodiscard]] double warmup_epochs_of(const Experiment& experiment);

// The value of [update] lazy_layers: "auto", a count of weight layers, or a fraction of them.
struct LazyLayers {
  enum class Kind { automatic, count, fraction };
  Kind kind = Kind::automatic;
  double number = 0.0;
};

// Throws ConfigError when it says something else.
[[nodiscard]] LazyLayers lazy_layers_of(const Experiment& experiment);

// False for a key that has another value than its default, and that the data, model, scheme,
// optimizer, schedule or policy which is chosen does not read.
[[nodiscard]] bool has_effect(const Key& key, const Experiment& experiment);

// The complaint about such a key, without its name: its value, what is chosen, and which choices
// read it. Empty for other keys.
[[nodiscard]] std::string complaint_about_effect(const Key& key, const Experiment& experiment);

// Throws ConfigError that names the key when values, each possible by itself, do not go together
// in the scheme that is chosen. Keys that have no effect are not looked at: parse_experiment()
// refuses them, and a program's Experiment may have any.
void check_combinations(const Experiment& experiment);

}  // namespace rondo::train
