#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace rondo::train {

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
