// A data set and an augmentation from outside of the library: how many lines they take, and that a
// run uses them.

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xtensor/xview.hpp>

#include <rondo/tensor/xview.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>

#include "support/world.hpp"
#include "train/error_text.hpp"

namespace rondo::train::own_data_test {
namespace {

// Images of one grey level each; the class is dark or bright.
Images shades(std::int64_t count, int offset) {
  Images images{.shape = {count, 28, 28, 1}};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(i % 2);
    images.labels.push_back(label);
    images.pixels.insert(images.pixels.end(), 28 * 28,
                         static_cast<std::uint8_t>(60 + 120 * label + offset));
  }
  return images;
}

Dataset make_shades() {
  return {.name = "shades",
          .classes = 2,
          .training = shades(256, 0),
          .test = shades(64, 9),
          .mean = {0.5F},
          .stddev = {0.25F}};
}

// Devries, Taylor, "Improved regularization of convolutional neural networks with cutout", 2017.
Augmentation cutout(std::int64_t side) {
  return {.name = "cutout",
          .apply = [side](tensor::View<std::uint8_t> image, SampleRandom& random) {
            const std::int64_t top = random.below(image.shape.h - side);
            const std::int64_t left = random.below(image.shape.w - side);
            auto pixels = tensor::xview(image);
            xt::view(pixels, 0, xt::range(top, top + side), xt::range(left, left + side)) = 0;
          }};
}

Experiment experiment() {
  Experiment experiment;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 32;
  experiment.train.epochs = 2;
  experiment.optimizer.learning_rate = 0.02;
  return experiment;
}

TEST(OwnDataTest, ARunLearnsADataSetFromOutside) {
  const Dataset dataset = make_shades();
  rondo::test::World{2}.run([&](transport::World& world) {
    const EpochMetrics last =
        train(world, experiment(), {.dataset = &dataset, .augmentations = {cutout(8)}});
    EXPECT_EQ(last.accuracy, 100.0);
  });
}

// One value of a pixel that no image of the data set has tells where something was cut out.
TEST(OwnDataTest, AnAugmentationChangesTrainingImagesAlone) {
  const Dataset dataset = make_shades();
  Loader loader(dataset, {.global_batch = 8, .largest_range = 8, .augmentations = {cutout(8)}});
  const float black = (0.0F - dataset.mean[0]) / dataset.stddev[0];

  EXPECT_THAT(loader.load_test(0, 8).images, testing::Each(testing::Gt(black)));
  const Batch batch = loader.load({0, 0, 0, 8});
  for (std::size_t i = 0; i < 8; ++i) {
    const auto image = batch.images.subspan(i * 28 * 28, 28 * 28);
    EXPECT_EQ(std::ranges::count(image, black), 64) << "image " << i;
  }
}

TEST(OwnDataTest, AnAugmentationIsTheSameWhoeverAsks) {
  const Dataset dataset = make_shades();
  const LoaderOptions options{
      .global_batch = 8, .flip = true, .largest_range = 8, .augmentations = {cutout(8)}};
  Loader one(dataset, options);
  Loader other(dataset, options);
  const Batch whole = one.load({1, 2, 0, 8});
  static_cast<void>(other.load({0, 0, 0, 8}));
  const Batch part = other.load({1, 2, 5, 8});

  const auto expected = whole.images.subspan(5 * 28 * 28);
  EXPECT_THAT(part.images, testing::ElementsAreArray(expected.begin(), expected.end()));
}

TEST(OwnDataTest, RefusesAugmentationsThatCannotBeToldApart) {
  const Dataset dataset = make_shades();
  const LoaderOptions twice{.augmentations = {cutout(8), cutout(4)}};
  const LoaderOptions empty{.augmentations = {Augmentation{.name = "nothing"}}};
  EXPECT_EQ(rondo::test::error_text<std::invalid_argument>([&] { Loader(dataset, twice); }),
            "loader: two augmentations have the same name");
  EXPECT_EQ(rondo::test::error_text<std::invalid_argument>([&] { Loader(dataset, empty); }),
            "loader: an augmentation without a function");
}

}  // namespace
}  // namespace rondo::train::own_data_test
