#pragma once

#include <array>
#include <cstddef>

#include <xtensor/xadapt.hpp>

#include <rondo/tensor/tensor.hpp>
#include <rondo/tensor/view.hpp>

namespace rondo::tensor {

/// A view as an xtensor expression of shape {n, h, w, c}, without a copy: it reads and, unless T is
/// const, writes the view's memory, and lives no longer. Strided views keep their stride:
/// assign with xt::noalias(x) = x + 1, since xtensor 0.24 forgets the stride in x += 1.
///
/// The one header that includes xtensor: it adds 1-2 s to every translation unit. Made for
/// oracles in tests, for npy files and for code at the edge. xtensor is 5 to 50 times slower than a
/// plain loop for crops, flips, padding, per-channel broadcasts and reductions over {0, 1, 2};
/// always xt::eval a reduction.
template <typename T>
[[nodiscard]] auto xview(View<T> view) {
  const Shape& shape = view.shape;
  const std::array<std::size_t, 4> extents{
      static_cast<std::size_t>(shape.n), static_cast<std::size_t>(shape.h),
      static_cast<std::size_t>(shape.w), static_cast<std::size_t>(shape.c)};
  // An extent of one must have a stride of zero: that is how xtensor knows what to broadcast.
  const auto stride = [](std::int64_t extent, std::int64_t elements) {
    return static_cast<std::ptrdiff_t>(extent == 1 ? 0 : elements);
  };
  const std::array<std::ptrdiff_t, 4> strides{stride(shape.n, view.image_stride),
                                              stride(shape.h, shape.w * shape.c),
                                              stride(shape.w, shape.c), stride(shape.c, 1)};
  // xtensor wants to hear of as many elements as the shape has, although strides reach further.
  return xt::adapt(view.data, static_cast<std::size_t>(shape.size()), xt::no_ownership(), extents,
                   strides);
}

[[nodiscard]] inline auto xview(Tensor& tensor) { return xview(tensor.view()); }
[[nodiscard]] inline auto xview(const Tensor& tensor) { return xview(tensor.view()); }

}  // namespace rondo::tensor
