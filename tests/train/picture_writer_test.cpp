// Crops, flips and normalisation against pictures cut out by hand.

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "data/picture_writer.hpp"

namespace rondo::train::picture_writer_test {
namespace {

constexpr tensor::Shape shape{1, 3, 4, 2};

std::vector<std::uint8_t> counting_picture() {
  std::vector<std::uint8_t> picture;
  for (std::uint8_t i = 0; i < shape.image(); ++i)
    picture.push_back(static_cast<std::uint8_t>(i + 1));
  return picture;
}

// The same, one value at a time.
float expected_value(const std::vector<std::uint8_t>& picture, const Crop& crop, std::int64_t y,
                     std::int64_t x, std::int64_t c, const std::vector<float>& mean,
                     const std::vector<float>& stddev) {
  const std::int64_t from_y = y + crop.top;
  const std::int64_t from_x = (crop.flip ? shape.w - 1 - x : x) + crop.left;
  const bool inside = from_y >= 0 && from_y < shape.h && from_x >= 0 && from_x < shape.w;
  const auto index = static_cast<std::size_t>((from_y * shape.w + from_x) * shape.c + c);
  const double pixel = inside ? picture[index] : 0.0;
  const auto channel = static_cast<std::size_t>(c);
  return static_cast<float>((pixel / 255.0 - mean[channel]) / stddev[channel]);
}

// Every place of the crop, from all padding on one side to all padding on the other.
TEST(PictureWriterTest, CutsMirrorsPadsAndNormalises) {
  const std::vector<float> mean = {0.25F, 0.5F};
  const std::vector<float> stddev = {0.5F, 2.0F};
  const PictureWriter writer(shape, mean, stddev);
  const std::vector<std::uint8_t> picture = counting_picture();

  for (std::int64_t place = 0; place < 2 * 11 * 11; ++place) {
    const Crop crop{.top = place % 11 - 5, .left = place / 11 % 11 - 5, .flip = place >= 121};
    std::vector<float> out(static_cast<std::size_t>(shape.image()), -99.0F);
    writer.write(picture.data(), crop, out.data());

    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t x = at / shape.c % shape.w;
      ASSERT_EQ(out[i], expected_value(picture, crop, at / shape.c / shape.w, x, at % shape.c, mean,
                                       stddev))
          << "element " << i << ", crop at " << crop.top << ", " << crop.left;
    }
  }
}

// One, three and other numbers of channels run different loops.
TEST(PictureWriterTest, TreatsAllNumbersOfChannelsAlike) {
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    const tensor::Shape row{1, 1, 5, channels};
    const std::vector<float> zeros(static_cast<std::size_t>(channels), 0.0F);
    const std::vector<float> scale(static_cast<std::size_t>(channels), 1.0F / 255.0F);
    const PictureWriter writer(row, zeros, scale);
    std::vector<std::uint8_t> picture;
    for (std::int64_t i = 0; i < row.image(); ++i) picture.push_back(static_cast<std::uint8_t>(i));
    std::vector<float> out(picture.size());

    writer.write(picture.data(), {}, out.data());

    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], static_cast<float>(i));
  }
}

}  // namespace
}  // namespace rondo::train::picture_writer_test
