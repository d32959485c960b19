// Crops, flips and normalisation against images cut out by hand.

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "data/augmentations.hpp"
#include "data/image_writer.hpp"

namespace rondo::train::image_writer_test {
namespace {

constexpr tensor::Shape shape{1, 3, 4, 2};

std::vector<std::uint8_t> counting_image() {
  std::vector<std::uint8_t> image;
  for (std::uint8_t i = 0; i < shape.image(); ++i)
    image.push_back(static_cast<std::uint8_t>(i + 1));
  return image;
}

// How an image is moved, and then mirrored or not.
struct Crop {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;
};

// The same, one value at a time.
float expected_value(const std::vector<std::uint8_t>& image, const Crop& crop, std::int64_t y,
                     std::int64_t x, std::int64_t c, const std::vector<float>& mean,
                     const std::vector<float>& stddev) {
  const std::int64_t from_y = y + crop.top;
  const std::int64_t from_x = (crop.flip ? shape.w - 1 - x : x) + crop.left;
  const bool inside = from_y >= 0 && from_y < shape.h && from_x >= 0 && from_x < shape.w;
  const auto index = static_cast<std::size_t>((from_y * shape.w + from_x) * shape.c + c);
  const double pixel = inside ? image[index] : 0.0;
  const auto channel = static_cast<std::size_t>(c);
  return static_cast<float>((pixel / 255.0 - mean[channel]) / stddev[channel]);
}

// Every offset of the crop, from all padding on one side to all padding on the other.
TEST(ImageWriterTest, CutsMirrorsPadsAndNormalises) {
  const std::vector<float> mean = {0.25F, 0.5F};
  const std::vector<float> stddev = {0.5F, 2.0F};
  const ImageWriter writer(mean, stddev);
  const std::vector<std::uint8_t> image = counting_image();

  for (std::int64_t i = 0; i < 2 * 11 * 11; ++i) {
    const Crop crop{.top = i % 11 - 5, .left = i / 11 % 11 - 5, .flip = i >= 121};
    std::vector<float> out(static_cast<std::size_t>(shape.image()), -99.0F);
    std::vector<std::uint8_t> cut = image;
    const tensor::View<std::uint8_t> view(cut.data(), shape);
    shift_image(view, crop.top, crop.left);
    if (crop.flip) mirror_image(view);
    writer.write(cut.data(), shape.h * shape.w, out.data());

    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto at = static_cast<std::int64_t>(k);
      const std::int64_t x = at / shape.c % shape.w;
      ASSERT_EQ(out[k],
                expected_value(image, crop, at / shape.c / shape.w, x, at % shape.c, mean, stddev))
          << "element " << k << ", crop at " << crop.top << ", " << crop.left;
    }
  }
}

// One, three and other numbers of channels run different loops.
TEST(ImageWriterTest, TreatsAllNumbersOfChannelsAlike) {
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    const tensor::Shape row{1, 1, 5, channels};
    const std::vector<float> zeros(static_cast<std::size_t>(channels), 0.0F);
    const std::vector<float> scale(static_cast<std::size_t>(channels), 1.0F / 255.0F);
    const ImageWriter writer(zeros, scale);
    std::vector<std::uint8_t> image;
    for (std::int64_t i = 0; i < row.image(); ++i) image.push_back(static_cast<std::uint8_t>(i));
    std::vector<float> out(image.size());

    writer.write(image.data(), row.w, out.data());

    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], static_cast<float>(i));
  }
}

}  // namespace
}  // namespace rondo::train::image_writer_test
