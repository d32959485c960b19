#pragma once

#include <cmath>
#include <span>

#include <gtest/gtest.h>

namespace rondo::tensor::test {

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
