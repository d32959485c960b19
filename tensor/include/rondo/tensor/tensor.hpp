#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>

#include <rondo/tensor/export.hpp>
#include <rondo/tensor/shape.hpp>
#include <rondo/tensor/view.hpp>

namespace rondo::tensor {

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
