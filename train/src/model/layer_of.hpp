#pragma once

#include <string>

#include <rondo/train/parameters.hpp>

namespace rondo::train {

/// The layer that a parameter or statistic is of: its name but for the last part.
[[nodiscard]] inline std::string layer_of(const Parameter& parameter) {
  return parameter.name.substr(0, parameter.name.rfind('.'));
}

}  // namespace rondo::train
