#pragma once

#include <cstdint>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/image.hpp>

namespace rondo::train {

// The pixels of an original that lie in memory: a rectangle of it.
struct StoredPixels {
  tensor::View<const std::uint8_t> pixels = {};
  std::int64_t top = 0;  // their place in the original
  std::int64_t left = 0;
  std::int64_t height = 0;  // of the original
  std::int64_t width = 0;
};

// resample() of an original of which only the pixels within the window, or around it, are there.
// The result is the same, bit for bit.
void resample(const StoredPixels& original, const ImageWindow& window,
              tensor::View<std::uint8_t> out);

}  // namespace rondo::train
