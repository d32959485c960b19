#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <type_traits>

#include <rondo/tensor/data_type.hpp>
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

/// Throws std::invalid_argument: elements are `given`, and were asked for as `wanted`.
[[noreturn]] RONDO_TENSOR_API void refuse_type(DataType given, DataType wanted);

/// A View whose type of elements is known at run time: what kernels of several types take. Made
/// from a View of float or Bfloat16.
template <typename Void>
struct BasicAnyView {
  static constexpr bool is_const = std::is_const_v<Void>;
  template <typename T>
  using Element = std::conditional_t<is_const, const T, T>;

  Void* data = nullptr;
  Shape shape = {};
  DataType type = DataType::f32;

  BasicAnyView() = default;
  BasicAnyView(Void* first, Shape extents, DataType elements) noexcept
      : data(first), shape(extents), type(elements) {}
  template <typename T>
    requires(TensorElement<std::remove_const_t<T>> && (is_const || !std::is_const_v<T>))
  // NOLINTNEXTLINE(google-explicit-constructor): kernels are given views of any type.
  BasicAnyView(View<T> view) noexcept
      : data(view.data), shape(view.shape), type(data_type_of<std::remove_const_t<T>>) {}
  // NOLINTNEXTLINE(google-explicit-constructor): what can be written can be read.
  operator BasicAnyView<const void>() const noexcept
    requires(!is_const)
  {
    return {data, shape, type};
  }

  /// With elements of type T; throws std::invalid_argument where they are of another one.
  template <TensorElement T>
  [[nodiscard]] View<Element<T>> as() const {
    if (type != data_type_of<T>) refuse_type(type, data_type_of<T>);
    return {static_cast<Element<T>*>(data), shape};
  }
};
using AnyView = BasicAnyView<void>;
using ConstAnyView = BasicAnyView<const void>;

/// A dense NHWC tensor that owns its memory, of a type that is chosen at run time.
///
/// Memory comes from `memory` (which must outlive the tensor), aligned to a cache line, zeroed.
class RONDO_TENSOR_API AnyTensor {
 public:
  AnyTensor() noexcept = default;
  AnyTensor(Shape shape, DataType type,
            std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  AnyTensor(AnyTensor&& other) noexcept;
  AnyTensor& operator=(AnyTensor&& other) noexcept;
  AnyTensor(const AnyTensor&) = delete;
  AnyTensor& operator=(const AnyTensor&) = delete;
  ~AnyTensor();

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DataType type() const noexcept { return type_; }
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] AnyView view() noexcept { return {data_, shape_, type_}; }
  [[nodiscard]] ConstAnyView view() const noexcept { return {data_, shape_, type_}; }

 private:
  [[nodiscard]] std::size_t bytes() const noexcept;

  Shape shape_;
  DataType type_ = DataType::f32;
  std::pmr::memory_resource* memory_ = nullptr;
  void* data_ = nullptr;
};

/// An AnyTensor of fp32, which most code works with.
class RONDO_TENSOR_API Tensor {
 public:
  Tensor() noexcept = default;
  explicit Tensor(Shape shape, std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : any_(shape, DataType::f32, memory) {}

  [[nodiscard]] const Shape& shape() const noexcept { return any_.shape(); }
  [[nodiscard]] float* data() noexcept { return static_cast<float*>(any_.data()); }
  [[nodiscard]] const float* data() const noexcept { return static_cast<float*>(any_.data()); }
  [[nodiscard]] std::span<float> span() noexcept;
  [[nodiscard]] std::span<const float> span() const noexcept;
  [[nodiscard]] View<float> view() noexcept { return {data(), shape()}; }
  [[nodiscard]] View<const float> view() const noexcept { return {data(), shape()}; }
  /// The first `images` images.
  [[nodiscard]] View<float> first(std::int64_t images) noexcept {
    return {data(), shape().with_n(images)};
  }
  [[nodiscard]] View<const float> first(std::int64_t images) const noexcept {
    return {data(), shape().with_n(images)};
  }

 private:
  AnyTensor any_;
};

}  // namespace rondo::tensor
