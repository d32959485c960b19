#pragma once

// JPEG and PNG files, made by the libraries themselves, and PNG files of every kind.

#include <cstdio>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <rondo/train/image.hpp>

#include "train/data_files.hpp"

namespace rondo::test {

// Red grows from top to bottom, green from left to right; blue is `blue`. Smooth, so that a JPEG
// of it is nearly the same.
inline train::Image gradient_image(std::int64_t height, std::int64_t width, int blue = 90) {
  train::Image image{.shape = {1, height, width, 3}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>(20 + 200 * y / height));
      image.pixels.push_back(static_cast<std::uint8_t>(20 + 200 * x / width));
      image.pixels.push_back(static_cast<std::uint8_t>(blue));
    }
  }
  return image;
}

struct JpegOptions {
  bool progressive = false;
  int down = 2;  // so many rows and columns share a colour
  int right = 2;
};

// `pixels` has height x width pixels of red, green and blue.
inline Bytes jpeg_of(std::int64_t height, std::int64_t width,
                     const std::vector<std::uint8_t>& pixels, const JpegOptions& options = {}) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.in_color_space = JCS_RGB;
  jpeg.input_components = 3;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg.comp_info[0].v_samp_factor = options.down;
  jpeg.comp_info[0].h_samp_factor = options.right;
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const std::size_t row_bytes = pixels.size() / static_cast<std::size_t>(height);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data() + y * row_bytes);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes result(memory, memory + bytes);
  std::free(memory);
  return result;
}

inline Bytes jpeg_of(const train::Image& image) {
  return jpeg_of(image.shape.h, image.shape.w, image.pixels);
}

// `format` is one of libpng's PNG_FORMAT_...
inline Bytes png_of(std::int64_t height, std::int64_t width,
                    const std::vector<std::uint8_t>& pixels,
                    std::uint32_t format = PNG_FORMAT_RGB) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(width);
  png.height = static_cast<png_uint_32>(height);
  png.format = format;
  png_alloc_size_t bytes = 0;
  png_image_write_to_memory(&png, nullptr, &bytes, 0, pixels.data(), 0, nullptr);
  Bytes result(bytes);
  png_image_write_to_memory(&png, result.data(), &bytes, 0, pixels.data(), 0, nullptr);
  result.resize(bytes);
  return result;
}

inline Bytes png_of(const train::Image& image) {
  return png_of(image.shape.h, image.shape.w, image.pixels);
}

// A PNG of any kind, made without libpng. `samples` are those of the pixels, row by row.
struct PngKind {
  int colour_type = 2;  // as in the header: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  int depth = 8;
  bool interlaced = false;
  Bytes palette = {};
  Bytes transparency = {};  // the tRNS chunk

  [[nodiscard]] std::size_t channels() const {
    return std::array<std::size_t, 7>{1, 0, 3, 1, 2, 0, 4}.at(
        static_cast<std::size_t>(colour_type));
  }
};

inline void append_number(Bytes& to, std::uint32_t number) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) {
    to.push_back(static_cast<std::uint8_t>(number >> shift));
  }
}

inline void append_chunk(Bytes& png, const std::string& type, const Bytes& data) {
  append_number(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = png.size();
  png.insert(png.end(), type.begin(), type.end());
  png.insert(png.end(), data.begin(), data.end());
  const auto length = static_cast<uInt>(png.size() - begin);
  append_number(png, static_cast<std::uint32_t>(crc32(0, png.data() + begin, length)));
}

// The rows that a pass of an interlaced image has, or those of all: each a filter byte (none), then
// its samples, the highest bit first.
inline Bytes png_rows(const PngKind& kind, std::size_t height, std::size_t width,
                      const std::vector<std::uint16_t>& samples) {
  struct Pass {
    std::size_t top, left, down, right;
  };
  const std::vector<Pass> passes =
      kind.interlaced ? std::vector<Pass>{{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                                          {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}}
                      : std::vector<Pass>{{0, 0, 1, 1}};
  Bytes rows;
  for (const Pass& pass : passes) {
    for (std::size_t y = pass.top; y < height && pass.left < width; y += pass.down) {
      rows.push_back(0);
      int bits = 0;
      for (std::size_t x = pass.left; x < width; x += pass.right) {
        for (std::size_t c = 0; c < kind.channels(); ++c) {
          const unsigned sample = samples[(y * width + x) * kind.channels() + c];
          for (int bit = kind.depth - 1; bit >= 0; --bit, ++bits) {
            if (bits % 8 == 0) rows.push_back(0);
            rows.back() |= static_cast<std::uint8_t>((sample >> bit & 1U) << (7 - bits % 8));
          }
        }
      }
    }
  }
  return rows;
}

inline Bytes png_of_kind(const PngKind& kind, std::uint32_t height, std::uint32_t width,
                         const std::vector<std::uint16_t>& samples) {
  Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  Bytes header;
  append_number(header, width);
  append_number(header, height);
  for (const int value : {kind.depth, kind.colour_type, 0, 0, kind.interlaced ? 1 : 0}) {
    header.push_back(static_cast<std::uint8_t>(value));
  }
  append_chunk(png, "IHDR", header);
  if (!kind.palette.empty()) append_chunk(png, "PLTE", kind.palette);
  if (!kind.transparency.empty()) append_chunk(png, "tRNS", kind.transparency);
  const Bytes rows = png_rows(kind, height, width, samples);
  uLongf bytes = compressBound(static_cast<uLong>(rows.size()));
  Bytes packed(bytes);
  compress(packed.data(), &bytes, rows.data(), static_cast<uLong>(rows.size()));
  packed.resize(bytes);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", {});
  return png;
}

inline Bytes ppm_of(const train::Image& image) {
  const std::string header = "P6\n# a comment\n" + std::to_string(image.shape.w) + " " +
                             std::to_string(image.shape.h) + "\n255\n";
  Bytes result(header.begin(), header.end());
  result.insert(result.end(), image.pixels.begin(), image.pixels.end());
  return result;
}

}  // namespace rondo::test
