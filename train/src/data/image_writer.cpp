// From bytes to normalised floats: (pixel / 255 - mean) / stddev of the channel. A byte has 256
// values, so each channel has a table of results, and writing an image is one look-up per value.

#include "data/image_writer.hpp"

#include <cstddef>

namespace rondo::train {
ImageWriter::ImageWriter(std::span<const float> mean, std::span<const float> stddev)
    : tables_(mean.size()) {
  for (std::size_t c = 0; c < tables_.size(); ++c) {
    for (std::size_t pixel = 0; pixel < tables_[c].size(); ++pixel) {
      const double value = static_cast<double>(pixel) / 255.0;
      tables_[c][pixel] = static_cast<float>((value - mean[c]) / stddev[c]);
    }
  }
}

// The usual numbers of channels have loops of their own: their tables stay in registers' reach.
void ImageWriter::write(const std::uint8_t* pixels, std::int64_t count, float* out) const {
  if (tables_.size() == 1) {
    const Table& grey = tables_[0];
    for (std::int64_t i = 0; i < count; ++i) out[i] = grey[pixels[i]];
    return;
  }
  if (tables_.size() == 3) {
    const Table& red = tables_[0];
    const Table& green = tables_[1];
    const Table& blue = tables_[2];
    for (std::int64_t i = 0; i < 3 * count; i += 3) {
      out[i] = red[pixels[i]];
      out[i + 1] = green[pixels[i + 1]];
      out[i + 2] = blue[pixels[i + 2]];
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (const Table& table : tables_) *out++ = table[*pixels++];
  }
}

}  // namespace rondo::train
