// JPEG files of every kind, written without libjpeg. Each block of 8 x 8 samples has one value, so
// that a file consists of little more than markers and the blocks' means, and what its pixels must
// be is known by arithmetic.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/image.hpp>

#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"

namespace rondo::train::jpeg_kinds_test {
namespace {

using rondo::test::Bytes;

struct JpegKind {
  std::size_t components = 3;
  int transform = -1;     // as Adobe's marker has it; -1: no such marker
  std::size_t right = 1;  // so many columns and rows share a colour
  std::size_t down = 1;
  std::size_t restart_interval = 0;
  bool progressive = false;
  bool rotated = false;  // says a note of the camera

  // How often a component has fewer columns or rows than the image.
  [[nodiscard]] std::size_t columns_shared(std::size_t c) const { return c % 3 == 0 ? 1 : right; }
  [[nodiscard]] std::size_t rows_shared(std::size_t c) const { return c % 3 == 0 ? 1 : down; }
};

std::size_t quotient_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// The value of each sample of a block, also of those beyond the image's edge.
int block_value(std::size_t c, std::size_t row, std::size_t column) {
  return static_cast<int>(((c * 31 + row) * 37 + column + 1) * 0x9e3779b97f4a7c15U >> 56U);
}

class JpegWriter {
 public:
  JpegWriter(const JpegKind& kind, std::size_t height, std::size_t width)
      : kind_(kind), height_(height), width_(width) {
    file_ = {0xff, 0xd8};
    if (kind.rotated) {
      marker(0xe1, {'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1,
                    1,   18,  0,   3,   0, 0, 0,   1,   0, 6,  0, 0, 0, 0, 0, 0});
    }
    if (kind.transform >= 0) {
      marker(0xee, {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, byte(kind.transform)});
    }
    Bytes steps(65, 8);  // so that a mean is a coefficient
    steps[0] = 0;
    marker(0xdb, steps);
    frame();
    marker(0xdd, {0, byte(kind.restart_interval)});
    // The sizes 0 to 8 of differences are codes of 4 bits; the end of a block is one of 1 bit.
    marker(0xc4, {0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
    marker(0xc4, {16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    means();
    for (std::size_t c = 0; kind.progressive && c < kind.components; ++c) ends(c);
    file_.insert(file_.end(), {0xff, 0xd9});
  }

  [[nodiscard]] const Bytes& file() const { return file_; }

 private:
  template <typename Number>
  static std::uint8_t byte(Number number) {
    return static_cast<std::uint8_t>(number);
  }

  void marker(std::uint8_t name, const Bytes& data) {
    file_.insert(file_.end(), {0xff, name, byte((data.size() + 2) >> 8U), byte(data.size() + 2)});
    file_.insert(file_.end(), data.begin(), data.end());
  }

  void frame() {
    Bytes data = {8,
                  byte(height_ >> 8U),
                  byte(height_),
                  byte(width_ >> 8U),
                  byte(width_),
                  byte(kind_.components)};
    for (std::size_t c = 0; c < kind_.components; ++c) {
      const std::size_t sampling =
          16 * (kind_.right / kind_.columns_shared(c)) + kind_.down / kind_.rows_shared(c);
      data.insert(data.end(), {byte(c + 1), byte(sampling), 0});
    }
    marker(kind_.progressive ? 0xc2 : 0xc0, data);
  }

  // Begins a scan of the components `first` to before `last`.
  void begin_scan(std::size_t first, std::size_t last, int coefficient, int last_coefficient) {
    Bytes data = {byte(last - first)};
    for (std::size_t c = first; c < last; ++c) data.insert(data.end(), {byte(c + 1), 0});
    data.insert(data.end(), {byte(coefficient), byte(last_coefficient), 0});
    marker(0xda, data);
    units_ = 0;
    means_.fill(128);
  }

  // Begins what no restart may divide.
  void begin_unit() {
    if (units_ > 0 && kind_.restart_interval > 0 && units_ % kind_.restart_interval == 0) {
      align();
      const std::size_t restarts = units_ / kind_.restart_interval;
      file_.insert(file_.end(), {0xff, byte(0xd0 + (restarts - 1) % 8)});
      means_.fill(128);
    }
    ++units_;
  }

  void means() {
    begin_scan(0, kind_.components, 0, kind_.progressive ? 0 : 63);
    for (std::size_t y = 0; y < quotient_up(height_, 8 * kind_.down); ++y) {
      for (std::size_t x = 0; x < quotient_up(width_, 8 * kind_.right); ++x) {
        begin_unit();
        for (std::size_t c = 0; c < kind_.components; ++c) component_of_unit(c, y, x);
      }
    }
    align();
  }

  void component_of_unit(std::size_t c, std::size_t y, std::size_t x) {
    const std::size_t rows = kind_.down / kind_.rows_shared(c);
    const std::size_t columns = kind_.right / kind_.columns_shared(c);
    for (std::size_t i = 0; i < rows * columns; ++i) {
      const int value = block_value(c, y * rows + i / columns, x * columns + i % columns);
      const int difference = value - means_.at(c);
      means_.at(c) = value;
      const int size =
          static_cast<int>(std::bit_width(static_cast<unsigned>(std::abs(difference))));
      bits(size, 4);
      bits(difference < 0 ? difference + (1 << size) - 1 : difference, size);
      if (!kind_.progressive) bits(0, 1);
    }
  }

  // A progressive file says of each component's blocks by itself that there is no more to them.
  void ends(std::size_t c) {
    begin_scan(c, c + 1, 1, 63);
    const std::size_t blocks = quotient_up(height_, 8 * kind_.rows_shared(c)) *
                               quotient_up(width_, 8 * kind_.columns_shared(c));
    for (std::size_t i = 0; i < blocks; ++i) {
      begin_unit();
      bits(0, 1);
    }
    align();
  }

  void bits(int value, int count) {
    for (int bit = count - 1; bit >= 0; --bit) {
      pending_ = pending_ << 1U | (static_cast<unsigned>(value) >> bit & 1U);
      if (pending_ < 0x100) continue;
      file_.push_back(byte(pending_));
      if (file_.back() == 0xff) file_.push_back(0);
      pending_ = 1;
    }
  }
  void align() {
    while (pending_ != 1) bits(1, 1);
  }

  JpegKind kind_;
  std::size_t height_, width_;
  Bytes file_;
  unsigned pending_ = 1;        // bits behind a 1
  std::size_t units_ = 0;       // of this scan
  std::array<int, 4> means_{};  // of each component's last block
};

// A component at a pixel: between the nearest samples, as far as there are any.
double sample(const JpegKind& kind, std::size_t c, std::size_t height, std::size_t width,
              std::size_t y, std::size_t x) {
  const auto place = [](std::size_t i, std::size_t size, std::size_t shared) {
    const auto last = static_cast<double>(quotient_up(size, shared) - 1);
    return std::clamp((static_cast<double>(i) + 0.5) / static_cast<double>(shared) - 0.5, 0.0,
                      last);
  };
  const double row = place(y, height, kind.rows_shared(c));
  const double column = place(x, width, kind.columns_shared(c));
  const auto at = [c](double r, double q) {
    return block_value(c, static_cast<std::size_t>(r) / 8, static_cast<std::size_t>(q) / 8);
  };
  const double right = column - std::floor(column);
  const double down = row - std::floor(row);
  return (1 - down) * ((1 - right) * at(row, column) + right * at(row, std::ceil(column))) +
         down * ((1 - right) * at(std::ceil(row), column) +
                 right * at(std::ceil(row), std::ceil(column)));
}

// By the formulas of JFIF and of Adobe's technical note 5116.
std::array<double, 3> expected_pixel(const JpegKind& kind, const std::array<double, 4>& s) {
  const auto cut = [](double value) { return std::clamp(value, 0.0, 255.0); };
  std::array<double, 3> pixel = {s[0], s[1], s[2]};
  if (kind.components == 1) return {s[0], s[0], s[0]};
  if (kind.transform > 0 || (kind.components == 3 && kind.transform < 0)) {
    pixel = {cut(s[0] + 1.402 * (s[2] - 128)),
             cut(s[0] - 0.344136 * (s[1] - 128) - 0.714136 * (s[2] - 128)),
             cut(s[0] + 1.772 * (s[1] - 128))};
  }
  if (kind.components == 3) return pixel;
  // With Adobe's marker the amounts of ink are stored inverted.
  const double light = kind.transform < 0 ? 255 - s[3] : s[3];
  for (double& value : pixel) value = (kind.transform == 0 ? value : 255 - value) * light / 255;
  return pixel;
}

constexpr std::array kinds = {
    JpegKind{.components = 1},
    JpegKind{.components = 1, .restart_interval = 2, .progressive = true},
    JpegKind{},
    JpegKind{.rotated = true},
    JpegKind{.restart_interval = 1},
    JpegKind{.progressive = true},
    JpegKind{.transform = 1},
    JpegKind{.transform = 0},
    JpegKind{.transform = 0, .restart_interval = 3, .progressive = true},
    JpegKind{.right = 2},
    JpegKind{.right = 2, .down = 2},
    JpegKind{.right = 2, .down = 2, .restart_interval = 2},
    JpegKind{.right = 2, .down = 2, .restart_interval = 1, .progressive = true},
    JpegKind{.components = 4},
    JpegKind{.components = 4, .transform = 0},
    JpegKind{.components = 4, .transform = 2},
    JpegKind{.components = 4, .transform = 2, .progressive = true},
};

class JpegKindsTest : public testing::TestWithParam<JpegKind> {
 protected:
  // The largest difference between what is read and what it should be.
  static double error(std::size_t height, std::size_t width) {
    const JpegKind& kind = GetParam();
    const rondo::test::ScratchFolder folder;
    const Image image = read_image(folder.write("image", JpegWriter(kind, height, width).file()));
    if (image.pixels.size() != height * width * 3) return 1000;
    double largest = 0;
    for (std::size_t i = 0; i < height * width; ++i) {
      std::array<double, 4> samples = {};
      for (std::size_t c = 0; c < kind.components; ++c) {
        samples.at(c) = sample(kind, c, height, width, i / width, i % width);
      }
      const std::array<double, 3> expected = expected_pixel(kind, samples);
      for (std::size_t c = 0; c < 3; ++c) {
        largest = std::max(largest, std::abs(image.pixels[3 * i + c] - expected.at(c)));
      }
    }
    return largest;
  }
};

// Colours are rounded between samples, when they become red, green and blue, and with black.
TEST_P(JpegKindsTest, GivesThePixelsThatTheFileStandsForAtAnySize) {
  constexpr double tolerance = 2;
  for (std::size_t n = 1; n <= 17; ++n) {
    EXPECT_LE(error(n, n), tolerance) << n;
    EXPECT_LE(error(n, 35), tolerance) << n;
  }
  EXPECT_LE(error(51, 33), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Kinds, JpegKindsTest, testing::ValuesIn(kinds));

}  // namespace
}  // namespace rondo::train::jpeg_kinds_test
