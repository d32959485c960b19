#include "data/picture_writer.hpp"

#include <algorithm>

namespace rondo::train {

PictureWriter::PictureWriter(const tensor::Shape& shape, std::span<const float> mean,
                             std::span<const float> stddev)
    : shape_(shape), tables_(static_cast<std::size_t>(shape.c)) {
  for (std::size_t c = 0; c < tables_.size(); ++c) {
    for (std::size_t value = 0; value < tables_[c].size(); ++value) {
      const double scaled = static_cast<double>(value) / 255.0;
      tables_[c][value] = static_cast<float>((scaled - mean[c]) / stddev[c]);
    }
  }
}

void PictureWriter::write(const std::uint8_t* picture, const Crop& crop, float* out) const {
  if (crop.top == 0 && crop.left == 0 && !crop.flip) {
    convert(picture, shape_.h * shape_.w, out);
    return;
  }
  for (std::int64_t y = 0; y < shape_.h; ++y) {
    const std::int64_t from = y + crop.top;
    const bool inside = from >= 0 && from < shape_.h;
    out = inside ? write_row(picture + from * shape_.w * shape_.c, crop, out) : pad(shape_.w, out);
  }
}

float* PictureWriter::write_row(const std::uint8_t* row, const Crop& crop, float* out) const {
  const std::int64_t before = std::clamp<std::int64_t>(-crop.left, 0, shape_.w);
  const std::int64_t behind = std::clamp<std::int64_t>(crop.left, 0, shape_.w);
  const std::int64_t count = shape_.w - before - behind;
  const std::uint8_t* pixels = row + behind * shape_.c;
  if (crop.flip) return pad(before, convert_mirrored(pixels, count, pad(behind, out)));
  return pad(behind, convert(pixels, count, pad(before, out)));
}

// The usual numbers of channels have loops of their own: their tables stay in registers' reach.
float* PictureWriter::convert(const std::uint8_t* pixels, std::int64_t count, float* out) const {
  if (tables_.size() == 1) {
    const Table& grey = tables_[0];
    for (std::int64_t i = 0; i < count; ++i) out[i] = grey[pixels[i]];
    return out + count;
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
    return out + 3 * count;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (const Table& table : tables_) *out++ = table[*pixels++];
  }
  return out;
}

float* PictureWriter::convert_mirrored(const std::uint8_t* pixels, std::int64_t count,
                                       float* out) const {
  for (std::int64_t i = count - 1; i >= 0; --i) out = convert(pixels + i * shape_.c, 1, out);
  return out;
}

float* PictureWriter::pad(std::int64_t count, float* out) const {
  for (std::int64_t i = 0; i < count; ++i) {
    for (const Table& table : tables_) *out++ = table[0];
  }
  return out;
}

}  // namespace rondo::train
