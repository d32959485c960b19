// Single images from files, for predictions: read, then brought to the shape that a model takes.
//
// Scaling is a weighted mean of the pixels under a triangle (bilinear when an image grows), which
// is as much wider as the image shrinks, so that no pixel is passed over. Rows and columns are
// scaled one after the other.

#include "inference/image_input.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

constexpr std::int64_t largest_extent = 65536;
constexpr std::int64_t most_pixels = std::int64_t{1} << 28;

// The header of a PPM or PGM: words between white space, and comments from # to the end of a line.
class NetpbmHeader {
 public:
  explicit NetpbmHeader(DataFile& file) : file_(file) {}

  std::string word() {
    char c = next();
    while (is_space(c) || c == '#') {
      while (c == '#' && next() != '\n') {
      }
      c = next();
    }
    std::string text;
    for (; !is_space(c); c = next()) {
      if (text.size() > 16) file_.fail("is no PPM or PGM: its header has a word of no end");
      text += c;
    }
    return text;
  }

  std::int64_t number(const char* what, std::int64_t most) {
    const std::string text = word();
    const bool digits =
        text.size() <= 6 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    const std::int64_t value = digits ? std::stoll(text) : 0;
    if (value >= 1 && value <= most) return value;
    file_.fail(fmt::format("says that its {} is {}, and not between 1 and {}", what, text, most));
  }

 private:
  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  char next() { return static_cast<char>(file_.take(1, "its header")[0]); }

  DataFile& file_;
};

// How one line of an image becomes another: it is scaled from `from` pixels to `to`, and of these
// the middle `kept` are wanted.
struct Scaling {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t kept = 0;
};

// What one pixel of the new line is made of: pixels [first, first + weights.size()) of the old one.
struct Contribution {
  std::int64_t first = 0;
  std::vector<float> weights = {};
};

Contribution contribution_to(double pixel, const Scaling& line) {
  const double scale = static_cast<double>(line.from) / static_cast<double>(line.to);
  const double reach = std::max(scale, 1.0);  // half the base of the triangle
  const double centre = (pixel + 0.5) * scale;
  const std::int64_t first = std::max<std::int64_t>(std::llround(std::floor(centre - reach)), 0);
  const std::int64_t last =
      std::min<std::int64_t>(std::llround(std::ceil(centre + reach)), line.from);
  Contribution mine{.first = first};
  float sum = 0.0F;
  for (std::int64_t i = first; i < last; ++i) {
    const double distance = std::abs(static_cast<double>(i) + 0.5 - centre) / reach;
    mine.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
    sum += mine.weights.back();
  }
  for (float& weight : mine.weights) weight /= sum;
  return mine;
}

std::vector<Contribution> contributions(const Scaling& line) {
  std::vector<Contribution> result;
  const std::int64_t first = (line.to - line.kept) / 2;
  for (std::int64_t i = 0; i < line.kept; ++i) {
    result.push_back(contribution_to(static_cast<double>(first + i), line));
  }
  return result;
}

// Of pixels that lie `stride` apart.
std::uint8_t weighted_mean(const std::uint8_t* line, std::int64_t stride, const Contribution& of) {
  float sum = 0.5F;  // rounds
  const std::uint8_t* pixel = line + of.first * stride;
  for (const float weight : of.weights) {
    sum += weight * static_cast<float>(*pixel);
    pixel += stride;
  }
  return static_cast<std::uint8_t>(std::clamp(sum, 0.0F, 255.0F));
}

Image scale_rows(const Image& image, const Scaling& row) {
  const tensor::Shape& from = image.shape;
  Image result{{1, from.h, row.kept, from.c}, {}};
  result.pixels.reserve(static_cast<std::size_t>(result.shape.size()));
  const std::vector<Contribution> columns = contributions(row);
  for (std::int64_t y = 0; y < from.h; ++y) {
    const std::uint8_t* pixels = image.pixels.data() + y * from.w * from.c;
    for (const Contribution& column : columns) {
      for (std::int64_t c = 0; c < from.c; ++c) {
        result.pixels.push_back(weighted_mean(pixels + c, from.c, column));
      }
    }
  }
  return result;
}

Image scale_columns(const Image& image, const Scaling& column) {
  const tensor::Shape& from = image.shape;
  Image result{{1, column.kept, from.w, from.c}, {}};
  result.pixels.reserve(static_cast<std::size_t>(result.shape.size()));
  const std::int64_t row = from.w * from.c;
  for (const Contribution& mine : contributions(column)) {
    for (std::int64_t x = 0; x < row; ++x) {
      result.pixels.push_back(weighted_mean(image.pixels.data() + x, row, mine));
    }
  }
  return result;
}

// Grey is the luma of ITU-R BT.601, as PIL and libjpeg have it.
Image with_channels(const Image& image, std::int64_t channels) {
  if (image.shape.c == channels) return image;
  Image result{{1, image.shape.h, image.shape.w, channels}, {}};
  const std::vector<std::uint8_t>& pixels = image.pixels;
  if (image.shape.c == 1 && channels == 3) {
    for (const std::uint8_t grey : pixels) result.pixels.insert(result.pixels.end(), 3, grey);
  } else if (image.shape.c == 3 && channels == 1) {
    for (std::size_t i = 0; i + 2 < pixels.size(); i += 3) {
      const int sum = 299 * pixels[i] + 587 * pixels[i + 1] + 114 * pixels[i + 2];
      result.pixels.push_back(static_cast<std::uint8_t>((sum + 500) / 1000));
    }
  } else {
    throw std::invalid_argument(
        fmt::format("an image of {} channels cannot become one of {}", image.shape.c, channels));
  }
  return result;
}

}  // namespace

Image read_image(const std::filesystem::path& file) {
  DataFile source(file, "give a binary PPM or PGM image of 8 bits");
  NetpbmHeader header(source);
  const std::string kind = header.word();
  if (kind != "P5" && kind != "P6") source.fail("does not begin with P5 or P6");
  const std::int64_t width = header.number("width", largest_extent);
  const std::int64_t height = header.number("height", largest_extent);
  const std::int64_t brightest = header.number("largest value", 255);
  if (width * height > most_pixels) source.fail("has more than 2^28 pixels");
  Image image{{1, height, width, kind == "P6" ? 3 : 1}, {}};
  image.pixels = source.take(static_cast<std::size_t>(image.shape.size()), "its pixels");
  source.expect_end();
  if (brightest == 255) return image;
  for (std::uint8_t& pixel : image.pixels) {
    const std::int64_t scaled = (pixel * 255 + brightest / 2) / brightest;
    pixel = static_cast<std::uint8_t>(std::min<std::int64_t>(scaled, 255));
  }
  return image;
}

// Only what is kept is computed, so that no proportions ask for much memory.
Image fit_image(const Image& image, const tensor::Shape& wanted) {
  const double rows = static_cast<double>(wanted.h) / static_cast<double>(image.shape.h);
  const double columns = static_cast<double>(wanted.w) / static_cast<double>(image.shape.w);
  const auto scaling = [&](std::int64_t from, std::int64_t kept) {
    const double extent = static_cast<double>(from) * std::max(rows, columns);
    return Scaling{from, std::max<std::int64_t>(std::llround(extent), kept), kept};
  };
  const Image coloured = with_channels(image, wanted.c);
  const Image narrow = scale_rows(coloured, scaling(image.shape.w, wanted.w));
  return scale_columns(narrow, scaling(image.shape.h, wanted.h));
}

}  // namespace rondo::train
