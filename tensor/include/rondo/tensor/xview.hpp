#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#if __has_include(<xtensor/containers/xadapt.hpp>)  // from xtensor 0.26 on
#include <xtensor/containers/xadapt.hpp>
#else
#include <xtensor/xadapt.hpp>
#endif

#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

/// A view as an xtensor expression of shape {n, h, w, c}, without a copy: it reads and, unless T is
/// const, writes the view's memory, and lives no longer.
///
/// The way to look at a tensor from outside of the kernels: in tests and their reference kernels,
/// in programs that embed the library, for npy files. Kernels run their own loops: xtensor is 5 to
/// 50 times slower than a plain loop for crops, flips, padding, per-channel broadcasts and
/// reductions over {0, 1, 2}; always xt::eval a reduction. The one header that includes xtensor: it
/// adds 1-2 s to every translation unit.
template <typename T>
[[nodiscard]] auto xview(View<T> view) {
  const std::array<std::size_t, 4> extents{
      static_cast<std::size_t>(view.shape.n), static_cast<std::size_t>(view.shape.h),
      static_cast<std::size_t>(view.shape.w), static_cast<std::size_t>(view.shape.c)};
  return xt::adapt(view.data, static_cast<std::size_t>(view.shape.size()), xt::no_ownership(),
                   extents);
}

[[nodiscard]] inline auto xview(Tensor& tensor) { return xview(tensor.view()); }
[[nodiscard]] inline auto xview(const Tensor& tensor) { return xview(tensor.view()); }

/// An array of `rows` rows of equal length as a matrix, on the same terms: logits of images,
/// {images, classes}.
template <typename T>
[[nodiscard]] auto xmatrix(std::span<T> values, std::int64_t rows) {
  const auto count = static_cast<std::size_t>(rows);
  const std::array<std::size_t, 2> extents{count, count == 0 ? 0 : values.size() / count};
  return xt::adapt(values.data(), values.size(), xt::no_ownership(), extents);
}

/// The same of a view: a row for each image.
template <typename T>
[[nodiscard]] auto xmatrix(View<T> view) {
  return xmatrix(std::span<T>(view.data, static_cast<std::size_t>(view.shape.size())),
                 view.shape.n);
}

}  // namespace rondo::tensor
