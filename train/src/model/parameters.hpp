#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <rondo/train/parameters.hpp>

namespace rondo::train {

/// Draws elements [first, first + values.size()) of `parameter`. Each element is a function of
/// (seed, the parameter's name, its index) alone, so any part can be drawn by anybody.
void draw_initial(const Parameter& parameter, std::uint64_t seed, std::size_t first,
                  std::span<float> values);

/// The layer that a parameter or statistic is of: its name but for the last part.
[[nodiscard]] inline std::string layer_of(const Parameter& parameter) {
  return parameter.name.substr(0, parameter.name.rfind('.'));
}

}  // namespace rondo::train
