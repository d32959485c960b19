#pragma once

// JPEG and PNG files, made by the libraries themselves.

#include <cstdio>

#include <jpeglib.h>
#include <png.h>

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
  J_COLOR_SPACE colours = JCS_RGB;  // of `pixels`: JCS_GRAYSCALE and JCS_CMYK have 1 and 4 values
  bool progressive = false;
  int down = 2;  // so many rows and columns share a colour
  int right = 2;
};

// `pixels` has height x width pixels of as many values as the colour space has.
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
  jpeg.in_color_space = options.colours;
  jpeg.input_components =
      static_cast<int>(pixels.size() / static_cast<std::size_t>(height * width));
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  // Only colours that are kept apart from brightness are shared.
  if (options.colours == JCS_RGB) {
    jpeg.comp_info[0].v_samp_factor = options.down;
    jpeg.comp_info[0].h_samp_factor = options.right;
  }
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

// Grey of 16 bits, without a chunk that says what the values mean, as most programs write it.
inline Bytes png_of_grey16(std::uint32_t side, std::uint16_t value) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes result;
  png_set_write_fn(
      png, &result,
      [](png_structp to, png_bytep bytes, png_size_t count) {
        auto& all = *static_cast<Bytes*>(png_get_io_ptr(to));
        all.insert(all.end(), bytes, bytes + count);
      },
      nullptr);
  png_set_IHDR(png, info, side, side, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  Bytes row;  // the high byte first
  for (std::uint32_t x = 0; x < side; ++x) {
    row.push_back(static_cast<std::uint8_t>(value >> 8U));
    row.push_back(static_cast<std::uint8_t>(value));
  }
  for (std::uint32_t y = 0; y < side; ++y) png_write_row(png, row.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return result;
}

inline Bytes ppm_of(const train::Image& image) {
  const std::string header = "P6\n# a comment\n" + std::to_string(image.shape.w) + " " +
                             std::to_string(image.shape.h) + "\n255\n";
  Bytes result(header.begin(), header.end());
  result.insert(result.end(), image.pixels.begin(), image.pixels.end());
  return result;
}

}  // namespace rondo::test
