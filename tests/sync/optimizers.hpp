#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace rondo::sync::test {

/// Normally distributed, the same for the same seed.
inline std::vector<float> random_values(std::size_t size, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

}  // namespace rondo::sync::test
