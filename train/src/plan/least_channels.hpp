#pragma once

#include <cstdint>

namespace rondo::train {

// Fewer channels or filters starve a kernel: one vector of AVX-512, oneDNN's block of channels.
constexpr std::int64_t least_channels = 16;

}  // namespace rondo::train
