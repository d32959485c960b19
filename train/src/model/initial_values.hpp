#pragma once

#include <cstdint>
#include <span>

#include <rondo/train/parameters.hpp>

namespace rondo::train {

/// Draws elements [first, first + values.size()) of `parameter`. Each element is a function of
/// (seed, the parameter's name, its index) alone, so any part can be drawn by anybody.
void draw_initial(const Parameter& parameter, std::uint64_t seed, std::size_t first,
                  std::span<float> values);

}  // namespace rondo::train
