#pragma once

#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>

namespace rondo::train {

/// Loads the library that update.plugin names, for good. Returns what makes its scheme, with
/// update.plugin_settings. Throws ConfigError when it cannot be loaded, is no plug-in, or is one of
/// another version; what is returned throws it when the plug-in cannot make a scheme, or does not
/// know a setting.
[[nodiscard]] MakeScheme load_scheme_plugin(const Experiment::Update& update);

}  // namespace rondo::train
