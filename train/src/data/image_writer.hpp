#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/tensor/tensor.hpp>

namespace rondo::train {

// How an image is cut out of its padded self: the row and column of the original that become the
// first ones (negative: padding comes first), then mirrored or not.
struct Crop {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;

  [[nodiscard]] bool operator==(const Crop&) const noexcept = default;
};

// Writes to `out` what `crop` leaves of `image`. Both are of `shape`, NHWC with one image. Padding
// has the pixel value 0.
void cut_image(const std::uint8_t* image, const tensor::Shape& shape, const Crop& crop,
               std::uint8_t* out);

// Turns 8-bit pixels into normalised floats, by a table of 256 values per channel.
class ImageWriter {
 public:
  ImageWriter(std::span<const float> mean, std::span<const float> stddev);

  // `count` pixels, with a value per channel each.
  void write(const std::uint8_t* pixels, std::int64_t count, float* out) const;

 private:
  using Table = std::array<float, 256>;

  std::vector<Table> tables_;  // per channel
};

}  // namespace rondo::train
