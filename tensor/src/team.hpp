#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <rondo/tensor/shape.hpp>

namespace rondo::tensor {

/// Makes `threads` the size of the calling thread's team, oneDNN's and ours, and flushes denormals
/// to zero on all of it. Cheap when nothing has changed.
void prepare_team(int threads);

/// Part `part` of `count` things in `parts` fixed cuts: [first, last).
struct Cut {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
[[nodiscard]] constexpr Cut cut(std::int64_t count, int part, int parts) noexcept {
  return {count * part / parts, count * (part + 1) / parts};
}

/// Calls run(0) ... run(parts - 1), each on a thread of the team. Without OpenMP (our clang builds:
/// a second OpenMP runtime beside oneDNN's would be a second team) one after another, with the
/// same result.
template <typename Run>
void for_each_part(int parts, const Run& run) {
  if (parts == 1) return run(0);
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
  for (int part = 0; part < parts; ++part) run(part);
}

/// Neighbouring pixels of one image.
struct Pixels {
  std::int64_t first = 0;  ///< element of the whole tensor
  std::size_t count = 0;   ///< elements, a multiple of the channels
};

enum class Order { forward, backward };

/// Calls use(Pixels) for every image that a part of the pixels touches. The cuts depend on the
/// shape and on the number of parts alone, and so do the bits of sums. A second pass goes backward,
/// to begin with what the first pass left in the cache.
template <typename Use>
void for_each_image(const Shape& shape, int part, int parts, Order order, const Use& use) {
  const std::int64_t image_pixels = shape.h * shape.w;
  const Cut pixels = cut(shape.n * image_pixels, part, parts);
  if (pixels.first == pixels.last) return;
  const std::int64_t first_image = pixels.first / image_pixels;
  const std::int64_t last_image = (pixels.last - 1) / image_pixels;
  for (std::int64_t i = 0; i <= last_image - first_image; ++i) {
    const std::int64_t image = order == Order::forward ? first_image + i : last_image - i;
    const std::int64_t begin = std::max(pixels.first, image * image_pixels);
    const std::int64_t end = std::min(pixels.last, (image + 1) * image_pixels);
    use(Pixels{begin * shape.c, static_cast<std::size_t>((end - begin) * shape.c)});
  }
}

}  // namespace rondo::tensor
