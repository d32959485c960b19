#pragma once

#include <cstdint>

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

}  // namespace rondo::tensor
