#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::reference {

/// Where element (n, h, w, c) lies in a dense tensor.
[[nodiscard]] constexpr std::size_t offset(const Shape& shape, std::int64_t n, std::int64_t h,
                                           std::int64_t w, std::int64_t c) {
  return static_cast<std::size_t>(((n * shape.h + h) * shape.w + w) * shape.c + c);
}

template <typename Use>
void for_each_element(const Shape& shape, const Use& use) {
  for (std::int64_t n = 0; n < shape.n; ++n) {
    for (std::int64_t h = 0; h < shape.h; ++h) {
      for (std::int64_t w = 0; w < shape.w; ++w) {
        for (std::int64_t c = 0; c < shape.c; ++c) use(n, h, w, c);
      }
    }
  }
}

[[nodiscard]] inline Tensor to_tensor(const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(shape);
  for (std::size_t i = 0; i < values.size(); ++i) tensor.span()[i] = static_cast<float>(values[i]);
  return tensor;
}

}  // namespace rondo::tensor::reference
