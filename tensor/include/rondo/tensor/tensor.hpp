#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <type_traits>

#include <rondo/tensor/export.hpp>

namespace rondo::tensor {

/// Extents of a four-dimensional activation. In memory the order is N, H, W, C: channels are
/// innermost.
struct Shape {
  std::int64_t n = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
  std::int64_t c = 0;

  /// Elements of one image.
  [[nodiscard]] constexpr std::int64_t image() const noexcept { return h * w * c; }
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return n * image(); }
  /// The same shape for another number of images.
  [[nodiscard]] constexpr Shape with_n(std::int64_t images) const noexcept {
    return {images, h, w, c};
  }
  [[nodiscard]] constexpr bool operator==(const Shape&) const noexcept = default;
};

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

/// A dense NHWC fp32 tensor that owns its memory.
///
/// Memory comes from `memory` (which must outlive the tensor), aligned to a cache line, zeroed.
class RONDO_TENSOR_API Tensor {
 public:
  Tensor() noexcept = default;
  explicit Tensor(Shape shape,
                  std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] float* data() noexcept { return data_; }
  [[nodiscard]] const float* data() const noexcept { return data_; }
  [[nodiscard]] std::span<float> span() noexcept;
  [[nodiscard]] std::span<const float> span() const noexcept;
  [[nodiscard]] View<float> view() noexcept { return {data_, shape_}; }
  [[nodiscard]] View<const float> view() const noexcept { return {data_, shape_}; }
  /// The first `images` images.
  [[nodiscard]] View<float> first(std::int64_t images) noexcept {
    return {data_, shape_.with_n(images)};
  }
  [[nodiscard]] View<const float> first(std::int64_t images) const noexcept {
    return {data_, shape_.with_n(images)};
  }

 private:
  Shape shape_;
  std::pmr::memory_resource* memory_ = nullptr;
  float* data_ = nullptr;
};

}  // namespace rondo::tensor
