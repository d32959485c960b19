#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::test {

/// Fills with small whole numbers: sums of their products are exact in any order.
inline void fill_whole(std::span<float> values, unsigned seed, int largest = 3) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> draw(-largest, largest);
  for (float& value : values) value = static_cast<float>(draw(random));
}

/// Fills with normally distributed values.
inline void fill_normal(std::span<float> values, unsigned seed, float mean = 0.0F,
                        float deviation = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(mean, deviation);
  for (float& value : values) value = draw(random);
}

inline Tensor whole_tensor(const Shape& shape, unsigned seed, int largest = 3) {
  Tensor tensor(shape);
  fill_whole(tensor.span(), seed, largest);
  return tensor;
}

inline Tensor normal_tensor(const Shape& shape, unsigned seed, float mean = 0.0F,
                            float deviation = 1.0F) {
  Tensor tensor(shape);
  fill_normal(tensor.span(), seed, mean, deviation);
  return tensor;
}

inline std::vector<float> whole_values(std::int64_t count, unsigned seed, int largest = 3) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_whole(values, seed, largest);
  return values;
}

inline std::vector<float> normal_values(std::int64_t count, unsigned seed, float mean = 0.0F,
                                        float deviation = 1.0F) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_normal(values, seed, mean, deviation);
  return values;
}

}  // namespace rondo::tensor::test
