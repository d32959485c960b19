#pragma once

#include <cstdint>
#include <type_traits>

#include <rondo/tensor/shape.hpp>

namespace rondo::tensor {

/// A tensor in somebody else's memory: dense, NHWC, not owning. xview() shows it to xtensor.
template <typename T>
struct View {
  T* data = nullptr;
  Shape shape = {};

  View() = default;
  View(T* first, Shape extents) noexcept : data(first), shape(extents) {}
  // NOLINTNEXTLINE(google-explicit-constructor): what can be written can be read.
  operator View<const T>() const noexcept
    requires(!std::is_const_v<T>)
  {
    return {data, shape};
  }

  [[nodiscard]] T* image(std::int64_t n) const noexcept { return data + n * shape.image(); }
};

}  // namespace rondo::tensor
