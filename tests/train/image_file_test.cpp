// JPEG, PNG and PPM files, whole and damaged, and changes of size.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/image.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "train/image_files.hpp"

namespace rondo::train::image_file_test {
namespace {

using rondo::test::Bytes;
using rondo::test::error_text;
using rondo::test::gradient_image;
using rondo::test::jpeg_of;
using rondo::test::png_of;
using rondo::test::png_of_kind;
using rondo::test::PngKind;
using rondo::test::ppm_of;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.shape, b.shape);
  int largest = 0;
  for (std::size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i) {
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  return largest;
}

Image read(const Bytes& bytes) {
  const rondo::test::ScratchFolder folder;
  return read_image(folder.write("image", bytes));
}

std::string error(const Bytes& bytes) {
  return error_text<DataError>([&] { return read(bytes); });
}

// The image that decode_image() makes of a window.
Image reduced(const Bytes& bytes, const ImageWindow& window, std::int64_t height,
              std::int64_t width) {
  Image image{.shape = {1, height, width, 3}};
  image.pixels.resize(static_cast<std::size_t>(image.shape.size()));
  decode_image(bytes, "image", [&](std::int64_t, std::int64_t) { return window; },
               {image.pixels.data(), image.shape});
  return image;
}

TEST(ImageFileTest, ReadsAllFormatsWhateverTheirName) {
  const Image image = gradient_image(37, 50);

  EXPECT_EQ(largest_difference(read(png_of(image)), image), 0);
  EXPECT_EQ(largest_difference(read(ppm_of(image)), image), 0);
  EXPECT_LE(largest_difference(read(jpeg_of(image)), image), 6);
  EXPECT_LE(largest_difference(read(jpeg_of(37, 50, image.pixels, {.progressive = true})), image),
            6);
}

// The pixels that a PNG stands for, by the format's own rule: grey is repeated, a palette is looked
// up, transparency is dropped, and a value of any depth is its share of 255.
std::vector<std::uint8_t> expected_pixels(const PngKind& kind,
                                          const std::vector<std::uint16_t>& samples) {
  std::vector<std::uint8_t> pixels;
  const unsigned largest = (1U << kind.depth) - 1;
  const std::size_t step = kind.colour_type == 2 || kind.colour_type == 6 ? 1 : 0;
  for (std::size_t i = 0; i < samples.size(); i += kind.channels()) {
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned sample = samples[i + c * step];
      pixels.push_back(kind.colour_type == 3
                           ? kind.palette[3 * sample + c]
                           : static_cast<std::uint8_t>((sample * 255U + largest / 2) / largest));
    }
  }
  return pixels;
}

std::vector<PngKind> all_png_kinds() {
  std::vector<PngKind> kinds;
  const std::map<int, std::vector<int>> depths = {
      {0, {1, 2, 4, 8, 16}}, {2, {8, 16}}, {3, {1, 2, 4, 8}}, {4, {8, 16}}, {6, {8, 16}}};
  std::mt19937 random(9);
  for (const auto& [type, possible] : depths) {
    for (const int depth : possible) {
      for (const bool interlaced : {false, true}) {
        PngKind kind{.colour_type = type, .depth = depth, .interlaced = interlaced};
        if (type == 3) kind.palette.resize(std::size_t{3} << static_cast<unsigned>(depth));
        for (std::uint8_t& value : kind.palette) value = static_cast<std::uint8_t>(random());
        kinds.push_back(kind);
        // An image with an alpha channel cannot have one transparent colour besides.
        kind.transparency.resize(type == 0 ? 2 : type == 2 ? 6 : type == 3 ? 2 : 0);
        if (!kind.transparency.empty()) kinds.push_back(kind);
      }
    }
  }
  return kinds;
}

TEST(ImageFileTest, ReadsTheStoredColoursOfEveryKindOfPng) {
  constexpr std::array<std::array<std::uint32_t, 2>, 6> sizes = {
      {{1, 1}, {3, 1}, {1, 3}, {8, 8}, {5, 17}, {19, 6}}};
  std::mt19937 random(7);
  for (const PngKind& kind : all_png_kinds()) {
    for (const auto& [height, width] : sizes) {
      std::vector<std::uint16_t> samples(height * width * kind.channels());
      for (std::uint16_t& sample : samples) {
        sample = static_cast<std::uint16_t>(random() % (1U << kind.depth));
      }

      const Image image = read(png_of_kind(kind, height, width, samples));

      const std::vector<std::uint8_t> expected = expected_pixels(kind, samples);
      EXPECT_THAT(image.pixels, testing::Pointwise(testing::Eq(), expected))
          << "type " << kind.colour_type << ", depth " << kind.depth
          << (kind.interlaced ? ", interlaced" : "") << ", transparent bytes "
          << kind.transparency.size() << ", " << height << " x " << width;
    }
  }
}

// The chunk stands behind the header; its checksum is of its type and its value, 1.0.
TEST(ImageFileTest, CarriesOutNoGamma) {
  const Bytes chunk = {0, 0, 0, 4, 'g', 'A', 'M', 'A', 0, 1, 0x86, 0xa0, 0x31, 0xe8, 0x96, 0x5f};
  constexpr int header_end = 8 + 25;
  Bytes png = png_of(4, 4, std::vector<std::uint8_t>(3 * 16, 128));
  for (int times = 0; times < 2; ++times) {
    png.insert(png.begin() + header_end, chunk.begin(), chunk.end());

    EXPECT_THAT(read(png).pixels, Each(128));
  }
  Bytes cut(png.begin(), png.begin() + header_end + 10);
  EXPECT_THAT(error(cut), HasSubstr("is no whole PNG image"));
}

// A JPEG is decoded at 1/8, 1/4, 1/2 or 1/1, then resampled: the result is that of the PNG, which
// is decoded whole, but for what JPEG loses.
TEST(ImageFileTest, ReducesAWindowAlikeFromAllFormats) {
  const Image image = gradient_image(401, 333);
  const Bytes jpeg = jpeg_of(image);
  const Bytes png = png_of(image);
  for (const ImageWindow& window :
       {ImageWindow{0, 0, 401, 333}, ImageWindow{100, 31, 200, 300}, ImageWindow{390, 320, 11, 13},
        ImageWindow{0.5, 0.25, 399.5, 320.125}}) {
    for (const std::int64_t side : {8, 20, 41, 100, 224}) {
      const Image from_jpeg = reduced(jpeg, window, side, side);
      const Image from_png = reduced(png, window, side, side);

      EXPECT_LE(largest_difference(from_jpeg, from_png), 8) << side << " of " << window.height;
    }
  }
}

// The mean over the first row is how many of its pixels are white, which tells where the edge lies.
TEST(ImageFileTest, KeepsThePlaceOfAnEdgeAtEverySize) {
  constexpr std::int64_t side = 56;
  for (const int size : {448, 449, 452, 455, 897}) {
    Image image{.shape = {1, size, size, 3}};
    const int edge = size * 9 / 10;
    for (int i = 0; i < size * size; ++i) {
      image.pixels.insert(image.pixels.end(), 3,
                          i % size < edge ? std::uint8_t{0} : std::uint8_t{255});
    }
    const ImageWindow whole{0, 0, static_cast<double>(size), static_cast<double>(size)};

    for (const Bytes& file : {jpeg_of(image), png_of(image)}) {
      const Image small = reduced(file, whole, side, side);
      const double sum =
          std::accumulate(small.pixels.begin(), small.pixels.begin() + 3 * side, 0.0);

      const double expected = static_cast<double>(side) * (size - edge) / size;
      EXPECT_NEAR(sum / (3 * 255), expected, 0.1) << size;
    }
  }
}

// Most JPEGs are decoded without the pixels around the window, but progressive ones, which have the
// same coefficients, are not: the results are the same bits, at every scale.
class LeftOutPixelsTest : public testing::TestWithParam<std::array<int, 2>> {};

TEST_P(LeftOutPixelsTest, ChangeNoOthers) {
  const auto [down, right] = GetParam();
  std::mt19937 random(5);
  constexpr int height = 133;
  constexpr int width = 171;
  std::vector<std::uint8_t> noise(std::size_t{3} * height * width);
  for (std::uint8_t& value : noise) value = static_cast<std::uint8_t>(random());
  const Bytes usual = jpeg_of(height, width, noise, {.down = down, .right = right});
  const Bytes progressive =
      jpeg_of(height, width, noise, {.progressive = true, .down = down, .right = right});
  const auto below = [&](int count) { return static_cast<int>(random() % std::uint32_t(count)); };
  for (int attempt = 0; attempt < 200; ++attempt) {
    const double rows = 1 + below(height);
    const double columns = 1 + below(width);
    const ImageWindow window{.top = below(64) / 64.0 * (height - rows),
                             .left = std::floor(below(64) / 64.0 * (width - columns)),
                             .height = rows,
                             .width = columns};
    const std::int64_t side = 1 + below(40);

    EXPECT_EQ(reduced(usual, window, side, side).pixels,
              reduced(progressive, window, side, side).pixels)
        << rows << " x " << columns << " at " << window.top << ", " << window.left << " to "
        << side;
  }
}

INSTANTIATE_TEST_SUITE_P(SharedColours, LeftOutPixelsTest,
                         testing::Values(std::array{1, 1}, std::array{1, 2}, std::array{2, 1},
                                         std::array{2, 2}, std::array{1, 4}));

TEST(ImageFileTest, RefusesImagesCutAnywhere) {
  const Image image = gradient_image(24, 17);
  const Bytes interlaced =
      png_of_kind({.interlaced = true}, 24, 17, {image.pixels.begin(), image.pixels.end()});
  for (const Bytes& whole : {jpeg_of(image), png_of(image), ppm_of(image), interlaced,
                             jpeg_of(24, 17, image.pixels, {.progressive = true})}) {
    // Behind the last pixels a PNG has 16 bytes that the decoder does not need.
    for (std::size_t length = 0; length + 20 < whole.size(); length += 1 + length / 16) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_THAT(error(cut), HasSubstr("/image: ")) << length << " of " << whole.size();
    }
  }
}

TEST(ImageFileTest, ChangedBytesGiveAnErrorOrAnImage) {
  const Image image = gradient_image(24, 17);
  std::mt19937 random(3);
  for (const Bytes& whole : {jpeg_of(image), png_of(image), ppm_of(image)}) {
    for (std::size_t place = 0; place < whole.size(); place += 1 + place / 64) {
      Bytes changed = whole;
      changed[place] ^= static_cast<std::uint8_t>(1 + random() % 255);
      try {
        const Image read_image = read(changed);
        EXPECT_EQ(read_image.pixels.size(), static_cast<std::size_t>(read_image.shape.size()));
      } catch (const DataError&) {  // the other good answer
      }
    }
  }
}

TEST(ImageFileTest, RefusesHugeImagesByTheirHeader) {
  Bytes jpeg = jpeg_of(gradient_image(16, 16));
  const std::array<std::uint8_t, 2> frame = {0xff, 0xc0};
  auto header = std::search(jpeg.begin(), jpeg.end(), frame.begin(), frame.end());
  ASSERT_NE(header, jpeg.end());
  std::fill_n(header + 5, 4, std::uint8_t{0xf0});  // height and width
  const std::string ppm = "P6 8000 7999 255\n";

  EXPECT_THAT(error(jpeg), HasSubstr("announces 61680 x 61680 pixels in its header; possible are"));
  EXPECT_THAT(error({ppm.begin(), ppm.end()}),
              HasSubstr("announces 7999 x 8000 pixels in its header, which 17 bytes cannot hold"));
}

TEST(ImageFileTest, SaysWhatIsNoImage) {
  EXPECT_THAT(error({}), HasSubstr("is empty"));
  EXPECT_THAT(error({'G', 'I', 'F', '8'}),
              AllOf(HasSubstr("is no JPEG, PNG, PPM or PGM image; replace or remove the file"),
                    Not(HasSubstr("data.broken"))));
  EXPECT_THAT(error_text<DataError>([] { return read_image("/no/such/file"); }),
              HasSubstr("/no/such/file: there is no such file; check its path"));
}

TEST(ResampleTest, KeepsAnImageOfItsSize) {
  const Image image = gradient_image(19, 31);
  Image same{.shape = image.shape, .pixels = std::vector<std::uint8_t>(image.pixels.size())};

  resample({image.pixels.data(), image.shape}, {0, 0, 19, 31}, {same.pixels.data(), same.shape});

  EXPECT_EQ(same.pixels, image.pixels);
}

TEST(ResampleTest, KeepsAConstantImageAtAnySize) {
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    const tensor::Shape from{1, 23, 40, channels};
    const std::vector<std::uint8_t> image(static_cast<std::size_t>(from.size()), 201);
    for (const std::int64_t side : {1, 7, 23, 100}) {
      const tensor::Shape to{1, side, 2 * side, channels};
      std::vector<std::uint8_t> out(static_cast<std::size_t>(to.size()));

      resample({image.data(), from}, {1.5, 2.25, 20.0, 30.5}, {out.data(), to});

      EXPECT_THAT(out, Each(201)) << side;
    }
  }
}

// Worked out by hand: from 4 pixels to 2, each new one reaches over 2 old pixels to both sides,
// with the weights 3, 3, 1 and the other way round; one of 7 lies outside.
TEST(ResampleTest, WeightsByTheDistance) {
  const std::vector<std::uint8_t> row = {0, 70, 140, 210};
  std::vector<std::uint8_t> out(2);

  resample({row.data(), {1, 1, 4, 1}}, {0, 0, 1, 4}, {out.data(), {1, 1, 2, 1}});

  EXPECT_THAT(
      out, testing::ElementsAre((3 * 0 + 3 * 70 + 1 * 140) / 7, (1 * 70 + 3 * 140 + 3 * 210) / 7));
}

TEST(ResampleTest, LooksAtTheWindowOnly) {
  std::vector<std::uint8_t> image(20 * 20, 255);
  for (std::size_t y = 5; y < 15; ++y)
    std::fill_n(image.begin() + 20 * static_cast<int>(y) + 5, 10, 9);
  std::vector<std::uint8_t> out(4 * 4);

  resample({image.data(), {1, 20, 20, 1}}, {5, 5, 10, 10}, {out.data(), {1, 4, 4, 1}});

  EXPECT_THAT(out, Each(9));
}

TEST(CentreWindowTest, KeepsTheRelationOfTheSides) {
  const ImageWindow square = centre_window(480, 640, 0.875, 224, 224);
  EXPECT_EQ(square.height, 420);
  EXPECT_EQ(square.width, 420);
  EXPECT_EQ(square.top, 30);
  EXPECT_EQ(square.left, 110);

  const ImageWindow wide = centre_window(100, 100, 1.0, 50, 200);
  EXPECT_EQ(wide.width, 100);
  EXPECT_EQ(wide.height, 25);

  const ImageWindow all = centre_window(100, 400, 1.0, 50, 200);
  EXPECT_EQ(all.width, 400);
  EXPECT_EQ(all.height, 100);
  const ImageWindow half = centre_window(400, 100, 0.5, 200, 50);
  EXPECT_EQ(half.width, 50);
  EXPECT_EQ(half.height, 200);
}

}  // namespace
}  // namespace rondo::train::image_file_test
