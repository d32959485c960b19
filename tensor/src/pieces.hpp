#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <rondo/tensor/shape.hpp>

#include "team.hpp"

namespace rondo::tensor {

/// Some neighbouring pixels of one image: dense memory in any view of that shape.
struct Piece {
  std::int64_t image = 0;
  std::int64_t first = 0;  ///< element within the image
  std::size_t count = 0;   ///< elements, a multiple of the channels
};

enum class Order { forward, backward };

/// Calls use(Piece) for every image that a part of the pixels touches. The cuts depend on the shape
/// and on the number of parts alone: not on strides, so that neither do the bits of sums. A second
/// pass goes backward, to meet first what the first pass left in the cache.
template <typename Use>
void for_each_piece(const Shape& shape, int part, int parts, Order order, const Use& use) {
  const std::int64_t image_pixels = shape.h * shape.w;
  const Cut pixels = cut(shape.n * image_pixels, part, parts);
  if (pixels.first == pixels.last) return;
  const std::int64_t first_image = pixels.first / image_pixels;
  const std::int64_t last_image = (pixels.last - 1) / image_pixels;
  for (std::int64_t i = 0; i <= last_image - first_image; ++i) {
    const std::int64_t image = order == Order::forward ? first_image + i : last_image - i;
    const std::int64_t begin = std::max(pixels.first, image * image_pixels);
    const std::int64_t end = std::min(pixels.last, (image + 1) * image_pixels);
    use(Piece{image, (begin - image * image_pixels) * shape.c,
              static_cast<std::size_t>((end - begin) * shape.c)});
  }
}

}  // namespace rondo::tensor
