#pragma once

// Numbers and specs that the tests of all layers use.

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
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

/// A convolution of square images by square kernels.
inline ConvolutionSpec square(std::int64_t n, std::int64_t side, std::int64_t channels,
                              std::int64_t filters, std::int64_t kernel, std::int64_t stride,
                              std::int64_t padding) {
  return {.input = {n, side, side, channels},
          .filters = filters,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride = stride,
          .pad_top = padding,
          .pad_bottom = padding,
          .pad_left = padding,
          .pad_right = padding};
}

/// ||a - b|| / ||b||, or ||a|| where b is zero.
inline double relative_distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(size == 0.0 ? difference : difference / size);
}

}  // namespace rondo::tensor::test
