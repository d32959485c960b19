// Images for predictions: what is read from PPM and PGM files, and how they come to the model's
// shape.

#include "inference/image_input.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "train/error_text.hpp"

namespace rondo::train::image_input_test {
namespace {

using rondo::test::error_text;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class ImageInputTest : public testing::Test {
 protected:
  Image read(const std::string& content) const {
    return read_image(folder_.write("image", content));
  }

  std::string refused(const std::string& content) const {
    return error_text<DataError>([&] { (void)read(content); });
  }

  rondo::test::ScratchFolder folder_;
};

TEST_F(ImageInputTest, ReadsColoursAndGrey) {
  const Image colours = read("P6 2 1 255\nabcdef");
  const Image grey = read("P5\n1 3\n255\nxyz");

  EXPECT_EQ(colours.shape, (tensor::Shape{1, 1, 2, 3}));
  EXPECT_THAT(colours.pixels, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_EQ(grey.shape, (tensor::Shape{1, 3, 1, 1}));
  EXPECT_THAT(grey.pixels, ElementsAre('x', 'y', 'z'));
}

TEST_F(ImageInputTest, PassesOverCommentsAndScalesToTheLargestValue) {
  const Image image = read("P5 # grey\n# two pixels\n2 1 # and\n15\n" + std::string("\x0f\x03", 2));

  EXPECT_THAT(image.pixels, ElementsAre(255, 51));
}

TEST_F(ImageInputTest, RefusesWhatIsNoSuchImage) {
  EXPECT_THAT(refused("GIF89a and more"), HasSubstr("image: does not begin with P5 or P6"));
  EXPECT_THAT(refused(std::string(100, 'x')), HasSubstr("no PPM or PGM"));
  EXPECT_THAT(refused("P6 2"), HasSubstr("is truncated: its header end at byte 4"));
  EXPECT_THAT(refused("P6 0 1 255\n"), HasSubstr("says that its width is 0"));
  EXPECT_THAT(refused("P6 1 -4 255\n"), HasSubstr("says that its height is -4"));
  EXPECT_THAT(refused("P6 1 1 65535\nabcdef"), HasSubstr("its largest value is 65535"));
  EXPECT_THAT(refused("P6 99999 1 255\n"), HasSubstr("says that its width is 99999"));
  EXPECT_THAT(refused("P6 65000 65000 255\n"), HasSubstr("has more than 2^28 pixels"));
  EXPECT_THAT(refused("P6 2 2 255\nabc"), HasSubstr("is truncated: its pixels end at byte 14"));
  EXPECT_THAT(refused("P5 1 1 255\nab"), HasSubstr("has unexpected bytes behind byte 12"));
  EXPECT_THAT(error_text<DataError>([&] { (void)read_image(folder_.path() / "absent"); }),
              HasSubstr("absent: cannot be opened (No such file or directory); give a binary PPM"));
}

TEST_F(ImageInputTest, LeavesAnImageOfTheRightShapeAsItIs) {
  const Image image{{1, 2, 2, 3}, {0, 1, 2, 3, 40, 50, 60, 70, 180, 190, 254, 255}};

  EXPECT_EQ(fit_image(image, {1, 2, 2, 3}).pixels, image.pixels);
}

TEST_F(ImageInputTest, CutsTheMiddleOutOfTheLongerSide) {
  const Image wide{{1, 2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const Image high{{1, 4, 1, 1}, {1, 2, 3, 4}};

  EXPECT_THAT(fit_image(wide, {1, 2, 2, 1}).pixels, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(fit_image(high, {1, 2, 1, 1}).pixels, ElementsAre(2, 3));
}

// Halves are means under a triangle of four pixels (at an edge of three); doubles are bilinear.
TEST_F(ImageInputTest, ScalesByWeightedMeans) {
  const Image line{{1, 4, 4, 1}, {0, 0, 140, 140, 0, 0, 140, 140, 0, 0, 140, 140, 0, 0, 140, 140}};
  const Image pair{{1, 2, 2, 1}, {0, 100, 0, 100}};

  EXPECT_THAT(fit_image(line, {1, 2, 2, 1}).pixels, ElementsAre(20, 120, 20, 120));
  EXPECT_THAT(fit_image(pair, {1, 4, 4, 1}).pixels,
              ElementsAre(0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100));
}

// A side that is scaled beyond all memory is computed only where it is wanted.
TEST_F(ImageInputTest, BearsAllProportions) {
  const Image line{{1, 1, 65536, 1}, std::vector<std::uint8_t>(65536, 7)};

  const Image fitted = fit_image(line, {1, 224, 224, 3});

  EXPECT_EQ(fitted.pixels.size(), 224U * 224U * 3U);
  EXPECT_THAT(fitted.pixels, Each(7));
}

TEST_F(ImageInputTest, TurnsGreyIntoColoursAndBack) {
  const Image grey{{1, 1, 2, 1}, {10, 200}};
  const Image colours{{1, 1, 2, 3}, {255, 0, 0, 10, 20, 30}};

  EXPECT_THAT(fit_image(grey, {1, 1, 2, 3}).pixels, ElementsAre(10, 10, 10, 200, 200, 200));
  EXPECT_THAT(fit_image(colours, {1, 1, 2, 1}).pixels, ElementsAre(76, 18));
  EXPECT_THROW((void)fit_image(colours, {1, 1, 2, 4}), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::image_input_test
