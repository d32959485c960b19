#include "data/image_writer.hpp"

#include <algorithm>
#include <cstddef>

namespace rondo::train {
namespace {

std::uint8_t* copy_mirrored(const std::uint8_t* pixels, std::int64_t count, std::int64_t channels,
                            std::uint8_t* out) {
  for (std::int64_t i = count - 1; i >= 0; --i) {
    out = std::copy_n(pixels + i * channels, channels, out);
  }
  return out;
}

std::uint8_t* cut_row(const std::uint8_t* row, const tensor::Shape& shape, const Crop& crop,
                      std::uint8_t* out) {
  const std::int64_t before = std::clamp<std::int64_t>(-crop.left, 0, shape.w);
  const std::int64_t behind = std::clamp<std::int64_t>(crop.left, 0, shape.w);
  const std::int64_t count = shape.w - before - behind;
  const std::uint8_t* pixels = row + behind * shape.c;
  const std::uint8_t padding = 0;
  out = std::fill_n(out, (crop.flip ? behind : before) * shape.c, padding);
  out = crop.flip ? copy_mirrored(pixels, count, shape.c, out)
                  : std::copy_n(pixels, count * shape.c, out);
  return std::fill_n(out, (crop.flip ? before : behind) * shape.c, padding);
}

}  // namespace

void cut_image(const std::uint8_t* image, const tensor::Shape& shape, const Crop& crop,
               std::uint8_t* out) {
  const std::int64_t row = shape.w * shape.c;
  for (std::int64_t y = 0; y < shape.h; ++y) {
    const std::int64_t from = y + crop.top;
    const bool inside = from >= 0 && from < shape.h;
    out = inside ? cut_row(image + from * row, shape, crop, out)
                 : std::fill_n(out, row, std::uint8_t{0});
  }
}

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
