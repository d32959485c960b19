#pragma once

#include <cstdint>
#include <type_traits>

#include <rondo/tensor/shape.hpp>

namespace rondo::tensor {

/// A tensor in somebody else's memory: NHWC, every image dense, consecutive images
/// `image_stride` elements apart.
///
/// The stride leaves room around an image: a kernel can write the rows of an image into the
/// middle of a taller one, where halo rows surround them. Not owning.
template <typename T>
struct View {
  T* data = nullptr;
  Shape shape = {};
  std::int64_t image_stride = 0;

  View() = default;
  View(T* first, Shape extents) noexcept
      : data(first), shape(extents), image_stride(extents.image()) {}
  View(T* first, Shape extents, std::int64_t stride) noexcept
      : data(first), shape(extents), image_stride(stride) {}
  // NOLINTNEXTLINE(google-explicit-constructor): what can be written can be read.
  operator View<const T>() const noexcept
    requires(!std::is_const_v<T>)
  {
    return {data, shape, image_stride};
  }

  [[nodiscard]] T* image(std::int64_t n) const noexcept { return data + n * image_stride; }
  [[nodiscard]] bool dense() const noexcept { return image_stride == shape.image(); }
};

}  // namespace rondo::tensor
