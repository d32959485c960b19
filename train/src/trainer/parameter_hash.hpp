#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo::train {

/// XXH3-128 of fp32 arrays as they lie in memory, in its canonical (big-endian) byte order.
using ParameterHash = std::array<std::uint8_t, 16>;

/// Of several arrays one after the other.
[[nodiscard]] ParameterHash hash_of(const std::vector<std::span<const float>>& arrays);

/// Of any bytes.
[[nodiscard]] ParameterHash digest_of(std::span<const std::byte> bytes);

/// 32 hexadecimal digits.
[[nodiscard]] std::string to_text(const ParameterHash& hash);

}  // namespace rondo::train
