// The augmentations that a configuration can name: what they do to an image, that they are the same
// however a batch is cut over ranks, and what is said about wrong ones.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/loader.hpp>

#include "support/error_text.hpp"

namespace rondo::train::augmentations_test {
namespace {

using rondo::test::error_text;
using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;

// Images of noise. Mean 0 and deviation 1/255 leave pixels as they are.
Dataset noise(std::int64_t samples, tensor::Shape shape) {
  Dataset dataset{.classes = samples};
  SampleRandom random(7, 0, 0, 1);
  for (Images* images : {&dataset.training, &dataset.test}) {
    images->shape = shape.with_n(samples);
    for (std::int64_t i = 0; i < images->shape.size(); ++i) {
      images->pixels.push_back(static_cast<std::uint8_t>(random.below(256)));
    }
    for (std::int64_t i = 0; i < samples; ++i) {
      images->labels.push_back(static_cast<std::int32_t>(i));
    }
  }
  dataset.mean.assign(static_cast<std::size_t>(shape.c), 0.0F);
  dataset.stddev.assign(static_cast<std::size_t>(shape.c), 1.0F / 255.0F);
  return dataset;
}

std::vector<float> epoch_of(Loader& loader, std::int64_t epoch, int ranks) {
  std::vector<float> images;
  for (std::int64_t step = 0; step < loader.steps(); ++step) {
    const std::int64_t samples = loader.samples(step);
    for (int rank = 0; rank < ranks; ++rank) {
      const Batch batch =
          loader.load({epoch, step, samples * rank / ranks, samples * (rank + 1) / ranks});
      images.insert(images.end(), batch.images.begin(), batch.images.end());
    }
  }
  return images;
}

// One augmentation, or all of them.
class AugmentationTest : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  [[nodiscard]] static LoaderOptions options(const Dataset& dataset) {
    LoaderOptions options{.global_batch = 12, .largest_range = 12};
    for (const std::string& text : GetParam()) {
      options.augmentations.push_back(make_augmentation(text, dataset.mean));
    }
    return options;
  }
};

// The share of a rank begins elsewhere for each number of ranks.
TEST_P(AugmentationTest, IsTheSameForAnyNumberOfRanks) {
  const Dataset dataset = noise(30, {0, 9, 11, 3});
  const LoaderOptions wanted = options(dataset);
  Loader loader(dataset, wanted);
  const std::vector<float> one = epoch_of(loader, 2, 1);

  EXPECT_THAT(epoch_of(loader, 2, 2), ElementsAreArray(one));
  EXPECT_THAT(epoch_of(loader, 2, 3), ElementsAreArray(one));
}

// Parts as a grid cuts them: rows, columns, both and samples, by numbers that do not divide them;
// and one that is empty.
std::vector<Box> parts_of(const tensor::Shape& batch) {
  std::vector<Box> parts;
  for (const auto& [n, h, w] : {std::array{1, 2, 1},
                                {1, 4, 1},
                                {1, 1, 2},
                                {1, 1, 3},
                                {1, 2, 3},
                                {1, 3, 2},
                                {2, 2, 2},
                                {5, 1, 1},
                                {1, 16, 1}}) {
    for (int block = 0; block < n * h * w; ++block) {
      parts.push_back({.n = even_range(batch.n, n, block / (h * w)),
                       .h = even_range(batch.h, h, block / w % h),
                       .w = even_range(batch.w, w, block % w),
                       .c = {0, batch.c}});
    }
  }
  return parts;
}

// The values of the batch that lie in `part`, in their order.
std::vector<float> cut(const Batch& batch, const tensor::Shape& shape, const Box& part) {
  std::vector<float> images;
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    const std::int64_t pixel = i / shape.c;
    const std::int64_t x = pixel % shape.w;
    const std::int64_t y = pixel / shape.w % shape.h;
    const std::int64_t sample = pixel / (shape.w * shape.h);
    const Box one{.n = {sample, sample + 1}, .h = {y, y + 1}, .w = {x, x + 1}, .c = {0, shape.c}};
    if (part.contains(one)) images.push_back(batch.images[static_cast<std::size_t>(i)]);
  }
  return images;
}

// A batch has neither the values outside of the part, nor memory for them.
TEST_P(AugmentationTest, APartOfABatchIsCutFromTheWhole) {
  const tensor::Shape shape{12, 9, 11, 3};
  const Dataset dataset = noise(30, shape);
  const LoaderOptions wanted = options(dataset);
  Loader whole_loader(dataset, wanted);
  const Batch whole_batch = whole_loader.load({1, 1, 0, 12});
  const Batch whole_test = whole_loader.load_test(3, 15);
  for (const Box& part : parts_of(shape)) {
    Loader loader(dataset, wanted);
    loader.read_only({{12, part}});

    const Batch batch = loader.load({1, 1, 0, 12});
    const Batch test = loader.load_test(3, 15);

    const std::string place = testing::PrintToString(part.shape());
    ASSERT_THAT(batch.images, ElementsAreArray(cut(whole_batch, shape, part))) << place;
    ASSERT_THAT(batch.labels, ElementsAreArray(whole_batch.labels)) << place;
    ASSERT_THAT(batch.other_labels, ElementsAreArray(whole_batch.other_labels)) << place;
    ASSERT_THAT(test.images, ElementsAreArray(cut(whole_test, shape, part))) << place;
    ASSERT_THAT(test.labels, ElementsAreArray(whole_test.labels)) << place;
  }
}

TEST_P(AugmentationTest, ChangesImagesFromEpochToEpoch) {
  const Dataset dataset = noise(1, {0, 9, 11, 3});
  Loader loader(dataset, options(dataset));
  std::set<std::vector<float>> looks;

  for (std::int64_t epoch = 0; epoch < 40; ++epoch) looks.insert(epoch_of(loader, epoch, 1));

  EXPECT_GE(looks.size(), GetParam() == std::vector<std::string>{"flip"} ? 2U : 10U);
}

TEST_P(AugmentationTest, LeavesTestImagesAlone) {
  const Dataset dataset = noise(5, {0, 9, 11, 3});
  Loader loader(dataset, options(dataset));

  const Batch batch = loader.load_test(0, 5);
  for (std::size_t i = 0; i < batch.images.size(); ++i) {
    ASSERT_NEAR(batch.images[i], dataset.test.pixels[i], 1e-4);
  }
}

TEST_P(AugmentationTest, TakesImagesOfOneChannel) {
  const Dataset dataset = noise(4, {0, 8, 8, 1});
  Loader loader(dataset, options(dataset));

  EXPECT_EQ(epoch_of(loader, 0, 1).size(), 4U * 64U);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, AugmentationTest,
    testing::Values(std::vector<std::string>{"crop:2"}, std::vector<std::string>{"flip"},
                    std::vector<std::string>{"random_resized_crop"},
                    std::vector<std::string>{"color_jitter"}, std::vector<std::string>{"cutout:3"},
                    std::vector<std::string>{"random_resized_crop:0.3,0.9", "flip", "crop:1",
                                             "color_jitter:0.1,0.2,0.3", "cutout", "mixup:0.8"}));

// Two loaders of 7 images, the second of which mixes them.
class MixupTest : public testing::Test {
 protected:
  [[nodiscard]] LoaderOptions with(std::vector<std::string> names) const {
    LoaderOptions options{.global_batch = 7, .largest_range = 7};
    for (const std::string& name : names) {
      options.augmentations.push_back(make_augmentation(name, dataset_.mean));
    }
    return options;
  }

  Dataset dataset_ = noise(7, {0, 5, 4, 3});
};

TEST_F(MixupTest, MixesEveryImageWithTheMirroredOneOfItsBatch) {
  Loader plain(dataset_, with({"flip", "crop:1"}));
  Loader mixing(dataset_, with({"flip", "crop:1", "mixup:1"}));
  const Batch own = plain.load({3, 0, 0, 7});
  const Batch mixed = mixing.load({3, 0, 0, 7});
  const auto share = static_cast<float>(mixed.share);

  ASSERT_GT(mixed.share, 0.0);
  ASSERT_LT(mixed.share, 1.0);
  EXPECT_THAT(own.other_labels, testing::IsEmpty());
  EXPECT_THAT(mixed.labels, ElementsAreArray(own.labels));
  EXPECT_THAT(mixed.other_labels, ElementsAreArray(own.labels.rbegin(), own.labels.rend()));
  for (std::size_t i = 0; i < own.images.size(); ++i) {
    const std::size_t partner = (6 - i / 60) * 60 + i % 60;
    ASSERT_EQ(mixed.images[i], share * own.images[i] + (1.0F - share) * own.images[partner]);
  }
}

TEST_F(MixupTest, GivesEveryPartOfABatchTheSameShareAndPartners) {
  Loader loader(dataset_, with({"mixup:1"}));
  const Batch whole = loader.load({3, 0, 0, 7});
  const std::vector<std::int32_t> others(whole.other_labels.begin(), whole.other_labels.end());
  const double share = whole.share;
  const Batch part = loader.load({3, 0, 2, 5});

  EXPECT_EQ(part.share, share);
  EXPECT_THAT(part.other_labels, ElementsAreArray(others.begin() + 2, others.begin() + 5));
}

TEST_F(MixupTest, AnAlphaOfZeroChangesNothing) {
  Loader plain(dataset_, with({"flip"}));
  Loader mixing(dataset_, with({"flip", "mixup:0"}));

  EXPECT_THAT(mixing.load({0, 0, 0, 7}).other_labels, testing::IsEmpty());
  EXPECT_THAT(epoch_of(mixing, 1, 1), ElementsAreArray(epoch_of(plain, 1, 1)));
}

// Beta(alpha, alpha) has the mean 1/2 and the variance 1 / (8 alpha + 4).
TEST_F(MixupTest, DrawsSharesFromTheBetaDistribution) {
  constexpr int draws = 20'000;
  for (const double alpha : {1e-3, 0.2, 1.0, 4.0}) {
    const Augmentation mixup = make_augmentation("mixup:" + std::to_string(alpha), {});
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < draws; ++i) {
      SampleRandom random(1, 0, i, 1);
      const double share = mixup.mix(random);
      ASSERT_TRUE(share >= 0.0 && share <= 1.0) << share;
      sum += share - 0.5;
      squares += (share - 0.5) * (share - 0.5);
    }
    // Four deviations of what is measured; no deviation of a square exceeds 1/4 / 2.
    EXPECT_NEAR(sum / draws, 0.0, 4.0 * 0.5 / std::sqrt(draws)) << alpha;
    EXPECT_NEAR(squares / draws, 1.0 / (8.0 * alpha + 4.0), 4.0 * 0.125 / std::sqrt(draws))
        << alpha;
  }
}

// A pixel of value 255 in a black image: where it is, and how often.
TEST(AugmentationsTest, CutoutPaintsASquareInTheMeanColour) {
  Dataset dataset = noise(1, {0, 20, 20, 1});
  std::ranges::fill(dataset.training.pixels, 255);
  const std::vector<float> mean = {100.0F / 255.0F};
  Loader loader(dataset,
                {.global_batch = 1, .augmentations = {make_augmentation("cutout:4", mean)}});
  std::set<std::int64_t> sizes;

  for (std::int64_t epoch = 0; epoch < 200; ++epoch) {
    const std::vector<float> image = epoch_of(loader, epoch, 1);
    sizes.insert(std::ranges::count_if(image, [](float x) { return std::abs(x - 100) < 0.1; }));
  }

  // At borders a part of the square lies outside.
  EXPECT_EQ(*sizes.rbegin(), 16);
  EXPECT_GE(*sizes.begin(), 4);
}

TEST(AugmentationsTest, RandomResizedCropChoosesSharesOfTheArea) {
  const Augmentation crop = make_augmentation("random_resized_crop:0.2,0.6", {});
  double least = 1.0;
  double most = 0.0;
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    SampleRandom random(1, 0, sample, 5);
    const ImageWindow window = crop.frame(300, 400, random);
    EXPECT_GE(window.top, 0.0);
    EXPECT_GE(window.left, 0.0);
    EXPECT_LE(window.top + window.height, 300.0);
    EXPECT_LE(window.left + window.width, 400.0);
    const double share = window.height * window.width / (300.0 * 400.0);
    least = std::min(least, share);
    most = std::max(most, share);
    EXPECT_NEAR(std::log(window.width / window.height), 0.0, std::log(4.0 / 3.0) + 0.02);
  }

  EXPECT_NEAR(least, 0.2, 0.01);
  EXPECT_NEAR(most, 0.6, 0.01);
}

TEST(AugmentationsTest, ColourJitterOfNothingChangesNothing) {
  const Dataset dataset = noise(3, {0, 5, 5, 3});
  Loader plain(dataset, {.global_batch = 3});
  Loader jittered(
      dataset, {.global_batch = 3, .augmentations = {make_augmentation("color_jitter:0,0,0", {})}});

  EXPECT_THAT(epoch_of(jittered, 0, 1), ElementsAreArray(epoch_of(plain, 0, 1)));
}

// It would write behind the image.
TEST(AugmentationsTest, CutoutWantsAMeanOfEachChannel) {
  const Augmentation cutout = make_augmentation("cutout:2", std::array{0.5F, 0.5F, 0.5F});
  std::vector<std::uint8_t> grey(16);
  SampleRandom random(1, 0, 0, 0);

  EXPECT_THAT(
      error_text<std::invalid_argument>([&] { cutout.apply({grey.data(), {1, 4, 4, 1}}, random); }),
      HasSubstr("one number for each channel"));
}

std::string error(const std::string& text) {
  return error_text<std::invalid_argument>([&] { return make_augmentation(text, {}); });
}

TEST(AugmentationsTest, SaysWhatIsWrong) {
  EXPECT_THAT(error("crup"), HasSubstr("no such augmentation; did you mean 'crop'?"));
  EXPECT_THAT(error("zzz"), HasSubstr("choose one of crop, flip, random_resized_crop"));
  EXPECT_THAT(error("crop:a"), HasSubstr("crop takes 1 number"));
  EXPECT_THAT(error("crop:"), HasSubstr("crop takes 1 number"));
  EXPECT_THAT(error("crop:1,2"), HasSubstr("crop takes 1 number"));
  EXPECT_THAT(error("crop:1.5"), HasSubstr("1.5 is impossible; must be an integer in [0, 4096]"));
  EXPECT_THAT(error("flip:1"), HasSubstr("flip takes no numbers"));
  EXPECT_THAT(error("color_jitter:0.1,nan,0.1"), HasSubstr("nan is impossible"));
  EXPECT_THAT(error("random_resized_crop:0.5,0.1"), HasSubstr("first number must not be greater"));
}

TEST(AugmentationsTest, AConfigurationNamesTheEntry) {
  const auto parse = [](const std::string& line) {
    return parse_experiment("[data]\nname = 'synthetic'\n" + line + "\n[model]\nname = 'lenet5'\n",
                            "exp.toml");
  };

  EXPECT_THAT(parse("augment = ['crop:4', 'flip']").data.augment,
              testing::ElementsAre("crop:4", "flip"));
  EXPECT_THAT(parse("augment = []").data.augment, testing::IsEmpty());
  EXPECT_THAT(parse("mean = [0, 0.5, 1]").data.mean, testing::ElementsAre(0.0, 0.5, 1.0));
  EXPECT_THAT(error_text<ConfigError>([&] { return parse("augment = ['crop:4', 'flop']"); }),
              HasSubstr("exp.toml:3: data.augment: \"flop\": no such augmentation; did you mean "
                        "'flip'?"));
  EXPECT_THAT(error_text<ConfigError>([&] { return parse("augment = [1]"); }),
              HasSubstr("data.augment: expected an array of strings"));
  EXPECT_THAT(error_text<ConfigError>([&] { return parse("decoder_cpus = '0-'"); }),
              HasSubstr("data.decoder_cpus: is no list of CPUs"));
}

}  // namespace
}  // namespace rondo::train::augmentations_test
