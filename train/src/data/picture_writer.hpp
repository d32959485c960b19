#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/tensor/shape.hpp>

namespace rondo::train {

// How a picture is cut out of its padded self: the row and column of the original that become
// the first ones (negative: padding comes first), then mirrored or not.
struct Crop {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;
};

// Turns 8-bit pictures into normalised floats, by a table of 256 values per channel. Padding has
// the pixel value 0, which is then normalised like the others.
class PictureWriter {
 public:
  PictureWriter(const tensor::Shape& shape, std::span<const float> mean,
                std::span<const float> stddev);

  // Both pictures are NHWC and of the writer's shape.
  void write(const std::uint8_t* picture, const Crop& crop, float* out) const;

 private:
  using Table = std::array<float, 256>;

  float* write_row(const std::uint8_t* row, const Crop& crop, float* out) const;
  float* convert(const std::uint8_t* pixels, std::int64_t count, float* out) const;
  float* convert_mirrored(const std::uint8_t* pixels, std::int64_t count, float* out) const;
  float* pad(std::int64_t count, float* out) const;

  tensor::Shape shape_;
  std::vector<Table> tables_;  // per channel
};

}  // namespace rondo::train
