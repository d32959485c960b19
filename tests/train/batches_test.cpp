// How a rank's batches come about: the order of an epoch, random numbers, images, micro-batches.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/loader.hpp>

#include "data/augmentations.hpp"
#include "data/image_writer.hpp"
#include "data/random.hpp"
#include "support/error_text.hpp"
#include "trainer/batch_iterator.hpp"

namespace rondo::train::batches_test {
namespace {

using testing::ElementsAre;

// Random numbers: the order of an epoch is a permutation, keyed and fair, and so are the numbers of
// augmentations.

std::vector<std::int64_t> order_of(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  EpochOrder order(samples, seed);
  order.begin(epoch);
  std::vector<std::int64_t> samples_in_order;
  for (std::int64_t i = 0; i < samples; ++i) samples_in_order.push_back(order[i]);
  return samples_in_order;
}

TEST(EpochOrderTest, IsAPermutation) {
  for (const std::int64_t samples : {0, 1, 2, 3, 1000}) {
    std::vector<std::int64_t> samples_in_order = order_of(samples, 7, 2);
    std::ranges::sort(samples_in_order);
    for (std::int64_t i = 0; i < samples; ++i)
      EXPECT_EQ(samples_in_order[static_cast<std::size_t>(i)], i);
  }
}

TEST(EpochOrderTest, DoesNotDependOnTheEpochsBefore) {
  EpochOrder order(100, 5);
  order.begin(0);
  order.begin(9);
  order.begin(4);
  std::vector<std::int64_t> samples_in_order;
  for (std::int64_t i = 0; i < 100; ++i) samples_in_order.push_back(order[i]);
  EXPECT_EQ(samples_in_order, order_of(100, 5, 4));
}

// A seed must mean the same run on every machine and in every release.
TEST(EpochOrderTest, KeepsItsOrderFromReleaseToRelease) {
  EXPECT_THAT(order_of(8, 1, 0), testing::ElementsAre(2, 5, 3, 4, 6, 7, 1, 0));
  EXPECT_THAT(order_of(8, 0x123456789abcdef0U, 3), testing::ElementsAre(0, 7, 2, 4, 5, 6, 1, 3));
}

// Over many epochs each sample comes first about equally often: 4000 draws among 8 give 500 each,
// with a deviation of 21.
TEST(EpochOrderTest, IsFair) {
  std::vector<int> first(8);
  EpochOrder order(8, 11);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    order.begin(epoch);
    ++first[static_cast<std::size_t>(order[0])];
  }
  constexpr int five_deviations = 105;
  for (const int count : first) EXPECT_NEAR(count, 500, five_deviations);
}

std::vector<std::uint32_t> numbers(SampleRandom random) {
  std::vector<std::uint32_t> drawn(10);
  for (std::uint32_t& number : drawn) number = random.next();
  return drawn;
}

TEST(SampleRandomTest, EveryPartOfTheKeyMatters) {
  const std::uint32_t stream = stream_of("noise");
  const std::vector<std::uint32_t> drawn = numbers({7, 2, 30, stream});
  EXPECT_EQ(numbers({7, 2, 30, stream}), drawn);
  EXPECT_NE(numbers({8, 2, 30, stream}), drawn);
  EXPECT_NE(numbers({7, 3, 30, stream}), drawn);
  EXPECT_NE(numbers({7, 2, 31, stream}), drawn);
  EXPECT_NE(numbers({7, 2, 30, stream_of("blur")}), drawn);
}

TEST(SampleRandomTest, DoesNotRepeatItself) {
  const std::vector<std::uint32_t> drawn = numbers({1, 0, 0, stream_of("noise")});
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), drawn.size());
}

TEST(SampleRandomTest, DrawsBelowALimitFairly) {
  std::vector<int> counts(5);
  SampleRandom random(1, 0, 0, stream_of("noise"));
  for (int i = 0; i < 5000; ++i) ++counts.at(static_cast<std::size_t>(random.below(5)));
  constexpr int five_deviations = 141;
  for (const int count : counts) EXPECT_NEAR(count, 1000, five_deviations);
}

// Crops, flips and normalisation against images cut out by hand.

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

// A rank's samples in steps and micro-batches.

/// Images of one pixel, each with a label of its own.
Dataset numbered(std::int64_t samples) {
  Dataset dataset{.classes = samples, .mean = {0.0F}, .stddev = {1.0F}};
  dataset.training.shape = {samples, 1, 1, 1};
  dataset.test.shape = {0, 1, 1, 1};
  for (std::int64_t i = 0; i < samples; ++i) {
    dataset.training.pixels.push_back(0);
    dataset.training.labels.push_back(static_cast<std::int32_t>(i));
  }
  return dataset;
}

std::vector<std::int32_t> labels_of(BatchIterator& stream, std::int64_t step) {
  std::vector<std::int32_t> labels;
  for (std::int64_t micro_batch = 0; micro_batch < stream.micro_batches(); ++micro_batch) {
    const Batch batch = stream.load(step, micro_batch);
    labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
  }
  return labels;
}

TEST(BatchIteratorTest, MicroBatchesMakeUpTheShare) {
  const Dataset dataset = numbered(20);
  const LoaderOptions loader{.global_batch = 14};
  BatchIterator whole(dataset, {.loader = loader, .rank = 1, .ranks = 2});
  BatchIterator micro_batches(dataset,
                              {.loader = loader, .rank = 1, .ranks = 2, .micro_batches = 3});

  for (const std::int64_t step : {0, 1, 2, 3}) {
    EXPECT_THAT(labels_of(micro_batches, step), testing::ElementsAreArray(labels_of(whole, step)))
        << step;
  }
  EXPECT_THAT(micro_batches.micro_batch_sizes(), ElementsAre(3, 2, 1));
  EXPECT_EQ(micro_batches.own_samples(0), 7);
  EXPECT_EQ(micro_batches.own_samples(1), 3);
}

TEST(BatchIteratorTest, MoreMicroBatchesThanSamplesAreEmptyOnes) {
  const Dataset dataset = numbered(4);
  BatchIterator stream(dataset, {.loader = {.global_batch = 2}, .micro_batches = 3});
  EXPECT_EQ(labels_of(stream, 0).size(), 2U);
  EXPECT_THAT(stream.micro_batch_sizes(), ElementsAre(1));
}

TEST(BatchIteratorTest, LeavesOutAShortLastBatchIfAsked) {
  const Dataset dataset = numbered(20);
  const BatchIterator all(dataset, {.loader = {.global_batch = 6}});
  const BatchIterator whole(dataset, {.loader = {.global_batch = 6}, .whole_batches = true});
  EXPECT_EQ(all.steps(), 4);
  EXPECT_EQ(all.epoch_samples(), 20);
  EXPECT_EQ(whole.steps(), 3);
  EXPECT_EQ(whole.epoch_samples(), 18);
}

TEST(BatchIteratorTest, RefusesAnEpochWithoutAWholeBatch) {
  const Dataset dataset = numbered(4);
  EXPECT_THAT(rondo::test::error_text<ConfigError>([&] {
                BatchIterator(dataset, {.loader = {.global_batch = 6}, .whole_batches = true});
              }),
              testing::HasSubstr("train.global_batch: 6 samples are more than the 4"));
}

TEST(BatchIteratorTest, WorkersHaveSeedsOfTheirOwn) {
  EXPECT_EQ(worker_seed(1, 0), worker_seed(1, 0));
  EXPECT_NE(worker_seed(1, 0), worker_seed(1, 1));
  EXPECT_NE(worker_seed(1, 0), worker_seed(2, 0));
}

TEST(BatchIteratorTest, RefusesFewerImagesThanReplicas) {
  const Dataset dataset = numbered(3);
  BatchIteratorOptions options;
  options.loader.global_batch = 8;
  options.ranks = 4;
  EXPECT_THAT(
      rondo::test::error_text<ConfigError>([&] { const BatchIterator batches(dataset, options); }),
      testing::HasSubstr(
          "the 3 images of the training set leave some of 4 replicas without a sample"));
}

// An augmentation that chooses a part resamples it; resampling has kernels for so many channels.
TEST(LoaderOptionsTest, PartsOfOriginalsHaveFourChannelsAtMost) {
  Experiment experiment;
  experiment.data.augment = {"random_resized_crop"};
  Dataset dataset;
  dataset.training.shape = {8, 8, 8, 4};
  EXPECT_NO_THROW(static_cast<void>(loader_options(experiment, dataset)));
  dataset.training.shape.c = 5;
  EXPECT_THAT(rondo::test::error_text<ConfigError>(
                  [&] { static_cast<void>(loader_options(experiment, dataset)); }),
              testing::HasSubstr(
                  "data.augment: random_resized_crop is for images of 1 to 4 channels, and these "
                  "have 5"));
}

}  // namespace
}  // namespace rondo::train::batches_test
