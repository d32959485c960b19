// The promises of a Loader: every sample once an epoch, the same images whoever asks, and whenever.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/image.hpp>
#include <rondo/train/loader.hpp>

#include "data/dataset_type.hpp"
#include "support/error_text.hpp"

namespace rondo::train::loader_test {
namespace {

// Image i has the label i, and the pixels i, i + 1, i + 2 and so on; mean 0 and deviation 1/255
// make a pixel's value its normalised value.
Dataset counting_dataset(std::int64_t samples, tensor::Shape shape = {0, 2, 2, 1}) {
  Dataset dataset{.name = "counting", .classes = samples};
  const auto image = static_cast<std::size_t>(shape.image());
  for (Images* images : {&dataset.training, &dataset.test}) {
    images->shape = shape.with_n(samples);
    for (std::int64_t i = 0; i < samples; ++i) {
      images->labels.push_back(static_cast<std::int32_t>(i));
      for (std::size_t k = 0; k < image; ++k) {
        images->pixels.push_back(static_cast<std::uint8_t>(static_cast<std::size_t>(i) + k));
      }
    }
  }
  dataset.mean.assign(static_cast<std::size_t>(shape.c), 0.0F);
  dataset.stddev.assign(static_cast<std::size_t>(shape.c), 1.0F / 255.0F);
  return dataset;
}

std::vector<Augmentation> crop_and_flip(int padding) {
  return {make_augmentation("crop:" + std::to_string(padding), {}), make_augmentation("flip", {})};
}

std::vector<float> images_of(const Batch& batch) {
  return {batch.images.begin(), batch.images.end()};
}
std::vector<std::int32_t> labels_of(const Batch& batch) {
  return {batch.labels.begin(), batch.labels.end()};
}

std::vector<std::int32_t> labels_of_epoch(Loader& loader, std::int64_t epoch) {
  std::vector<std::int32_t> labels;
  for (std::int64_t step = 0; step < loader.steps(); ++step) {
    const Batch batch = loader.load({epoch, step, 0, loader.samples(step)});
    labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
  }
  return labels;
}

TEST(LoaderTest, CountsStepsAndTheSamplesOfAShortLastOne) {
  const Dataset dataset = counting_dataset(10);
  const Loader loader(dataset, {.global_batch = 4, .largest_range = 4});
  EXPECT_EQ(loader.steps(), 3);
  EXPECT_EQ(loader.samples(0), 4);
  EXPECT_EQ(loader.samples(2), 2);
  EXPECT_EQ(loader.samples(3), 0);
}

TEST(LoaderTest, GivesEverySampleOnceAnEpoch) {
  const Dataset dataset = counting_dataset(103);
  Loader loader(dataset, {.global_batch = 10, .largest_range = 10});
  const std::vector<std::int32_t> labels = labels_of_epoch(loader, 0);
  EXPECT_EQ(labels.size(), 103U);
  EXPECT_EQ(std::set(labels.begin(), labels.end()).size(), 103U);
  EXPECT_FALSE(std::ranges::is_sorted(labels));
}

TEST(LoaderTest, ShufflesBySeedAndEpoch) {
  const Dataset dataset = counting_dataset(50);
  const LoaderOptions options{.global_batch = 50, .largest_range = 50};
  LoaderOptions reseeded = options;
  reseeded.seed = 2;
  Loader one(dataset, options);
  Loader same(dataset, options);
  Loader other(dataset, reseeded);

  EXPECT_EQ(labels_of_epoch(one, 3), labels_of_epoch(same, 3));
  EXPECT_NE(labels_of_epoch(one, 3), labels_of_epoch(one, 4));
  EXPECT_NE(labels_of_epoch(one, 3), labels_of_epoch(other, 3));
}

TEST(LoaderTest, KeepsPixelsAndLabelsTogether) {
  const Dataset dataset = counting_dataset(20);
  Loader loader(dataset, {.global_batch = 20, .largest_range = 20});

  const Batch batch = loader.load({0, 0, 0, 20});

  for (std::size_t i = 0; i < 20; ++i) {
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_FLOAT_EQ(batch.images[4 * i + k],
                      static_cast<float>(batch.labels[i]) + static_cast<float>(k));
    }
  }
}

TEST(LoaderTest, NormalisesEveryChannelByItsOwnMeanAndDeviation) {
  Dataset dataset = counting_dataset(1, {0, 1, 1, 3});  // pixels 0, 1, 2
  dataset.mean = {0.5F, 0.0F, 1.0F};
  dataset.stddev = {0.5F, 1.0F, 2.0F};
  Loader loader(dataset, {.global_batch = 1, .largest_range = 1});
  const std::vector<float> images = images_of(loader.load({0, 0, 0, 1}));
  EXPECT_FLOAT_EQ(images.at(0), -1.0F);
  EXPECT_FLOAT_EQ(images.at(1), 1.0F / 255.0F);
  EXPECT_FLOAT_EQ(images.at(2), (2.0F / 255.0F - 1.0F) / 2.0F);
}

TEST(LoaderTest, GivesWhatWasAnnouncedAndWhatWasNot) {
  const Dataset dataset = counting_dataset(40);
  Loader announced(dataset, {.global_batch = 8, .largest_range = 8});
  Loader plain(dataset, {.global_batch = 8, .largest_range = 8});

  for (std::int64_t step = 0; step < 5; ++step) {
    const SampleRange range{0, step, 0, 8};
    announced.prefetch(range);
    EXPECT_EQ(labels_of(announced.load(range)), labels_of(plain.load(range)));
  }
  announced.prefetch({0, 1, 0, 8});
  announced.prefetch({0, 2, 0, 8});
  EXPECT_EQ(labels_of(announced.load({0, 3, 2, 7})), labels_of(plain.load({0, 3, 2, 7})));
}

TEST(LoaderTest, LeavesABatchAloneWhileTheNextOneIsPrepared) {
  const Dataset dataset = counting_dataset(64);
  Loader loader(dataset, {.global_batch = 16, .largest_range = 16});
  Loader other(dataset, {.global_batch = 16, .largest_range = 16});
  const Batch batch = loader.load({0, 0, 0, 16});
  const std::vector<float> before = images_of(batch);

  loader.prefetch({0, 1, 0, 16});
  loader.prefetch({0, 2, 0, 16});
  static_cast<void>(loader.load_test(0, 10));

  EXPECT_EQ(images_of(batch), before);
  EXPECT_EQ(labels_of(loader.load({0, 2, 0, 16})), labels_of(other.load({0, 2, 0, 16})));
}

// Tells when `images` images have been read, and which.
class WatchedSource : public ImageSource {
 public:
  explicit WatchedSource(std::size_t images) : images_(images) {}

  void read(std::int64_t image, const Framing& /*framing*/,
            tensor::View<std::uint8_t> out) const override {
    std::fill_n(out.data, out.shape.size(), std::uint8_t{1});
    const std::lock_guard lock(mutex_);
    read_.insert(image);
    if (read_.size() == images_) all_read_.set_value(read_);
  }
  [[nodiscard]] std::string digest() const override { return "watched"; }
  [[nodiscard]] std::future<std::set<std::int64_t>> all_read() const {
    return all_read_.get_future();
  }

 private:
  std::size_t images_;
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> read_;
  mutable std::promise<std::set<std::int64_t>> all_read_;
};

// Images 0 to 7, whose labels are their numbers, as training set and as test set.
Dataset watched_dataset(const std::shared_ptr<WatchedSource>& source) {
  Dataset dataset = counting_dataset(8);
  for (Images* images : {&dataset.training, &dataset.test}) {
    images->pixels.clear();
    images->source = source;
  }
  return dataset;
}

TEST(LoaderTest, ReadsWhatWasAnnouncedBeforeAnybodyAsksForIt) {
  const auto source = std::make_shared<WatchedSource>(4);
  const Dataset dataset = watched_dataset(source);
  Loader loader(dataset, {.global_batch = 4, .largest_range = 4});
  std::future<std::set<std::int64_t>> all_read = source->all_read();

  loader.prefetch({0, 1, 0, 4});

  ASSERT_EQ(all_read.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  const std::vector<std::int32_t> labels = labels_of(loader.load({0, 1, 0, 4}));
  EXPECT_EQ(all_read.get(), std::set<std::int64_t>(labels.begin(), labels.end()));
}

TEST(LoaderTest, ReadsTheNextTestBatchBeforeAnybodyAsksForIt) {
  const auto source = std::make_shared<WatchedSource>(5);
  const Dataset dataset = watched_dataset(source);
  Loader loader(dataset, {.global_batch = 4, .largest_range = 4});
  std::future<std::set<std::int64_t>> all_read = source->all_read();

  EXPECT_EQ(loader.load_test(0, 3, {3, 5}).samples, 3);

  ASSERT_EQ(all_read.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_THAT(all_read.get(), testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(LoaderTest, AnEmptyRangeIsAnEmptyBatch) {
  const Dataset dataset = counting_dataset(5);
  Loader loader(dataset, {.global_batch = 5, .largest_range = 0});
  loader.prefetch({0, 0, 3, 3});
  const Batch batch = loader.load({0, 0, 3, 3});
  EXPECT_EQ(batch.samples, 0);
  EXPECT_TRUE(batch.images.empty());
  EXPECT_TRUE(batch.labels.empty());
}

TEST(LoaderTest, AllocatesNoMoreThanAStepHolds) {
  const Dataset dataset = counting_dataset(5);
  constexpr std::int64_t huge = 2'147'483'647;
  Loader loader(dataset, {.global_batch = huge, .largest_range = huge});
  EXPECT_EQ(loader.load({0, 0, 0, 5}).samples, 5);
}

TEST(LoaderTest, GivesTheTestSetInOrderAndWithoutAugmentation) {
  const Dataset dataset = counting_dataset(9);
  Loader loader(dataset,
                {.global_batch = 9, .largest_range = 9, .augmentations = crop_and_flip(1)});
  const Batch first = loader.load_test(2, 4);
  EXPECT_THAT(labels_of(first), testing::ElementsAre(2, 3));
  EXPECT_FLOAT_EQ(first.images[0], 2.0F);
  EXPECT_FLOAT_EQ(first.images[7], 6.0F);
  EXPECT_EQ(labels_of(loader.load_test(0, 9)).back(), 8);
  EXPECT_EQ(loader.load_test(4, 4).samples, 0);
}

// If the loader's threads did not end, its destructor would wait until the test's time limit.
TEST(LoaderTest, StopsReadingAheadWhenItIsDestroyed) {
  const Dataset dataset = counting_dataset(100);
  for (int i = 0; i < 20; ++i) {
    Loader loader(dataset, {.global_batch = 100, .largest_range = 100});
    loader.prefetch({i, 0, 0, 100});
  }
}

TEST(LoaderTest, RefusesRangesOutsideOfTheEpoch) {
  const Dataset dataset = counting_dataset(10);
  Loader loader(dataset, {.global_batch = 4, .largest_range = 3});

  for (const SampleRange range : {SampleRange{-1, 0, 0, 1},
                                  {0, 3, 0, 1},
                                  {0, -1, 0, 1},
                                  {0, 0, -1, 1},
                                  {0, 0, 2, 1},
                                  {0, 0, 2, 5},
                                  {0, 2, 0, 3},
                                  {0, 0, 0, 4}}) {
    EXPECT_THROW(static_cast<void>(loader.load(range)), std::invalid_argument);
    EXPECT_THROW(loader.prefetch(range), std::invalid_argument);
  }
  EXPECT_THROW(static_cast<void>(loader.load_test(0, 11)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(loader.load_test(0, 4, {4, 9})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(loader.load_test(0, 4, {8, 11})), std::invalid_argument);
}

TEST(LoaderTest, RefusesAPartOutsideOfTheImages) {
  const Dataset dataset = counting_dataset(4);
  Loader loader(dataset, {.global_batch = 4, .largest_range = 4});
  for (const Box& part : {Box{{0, 5}, {0, 2}, {0, 2}, {0, 1}},
                          {{0, 4}, {0, 3}, {0, 2}, {0, 1}},
                          {{0, 4}, {0, 2}, {-1, 2}, {0, 1}}}) {
    EXPECT_THROW(loader.read_only({{4, part}}), std::invalid_argument);
  }
}

// Images in memory are never broken, so a rank needs no others than its own.
TEST(LoaderTest, SkippingBrokenImagesLeavesTheSamplesOfOthersOut) {
  const Dataset dataset = counting_dataset(4);
  Loader loader(dataset, {.global_batch = 4, .largest_range = 4, .broken = BrokenImages::skip});
  loader.read_only({{4, {{2, 4}, {0, 2}, {0, 2}, {0, 1}}}});

  const Batch batch = loader.load({0, 0, 0, 4});

  ASSERT_EQ(batch.images.size(), 8U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(batch.images[4 * i + 1], static_cast<float>(batch.labels[i + 2] + 1), 1e-4);
  }
}

// Four images of 2 x 2 pixels, of which the rank computes on a row: half of the bytes of images.
TEST(LoaderTest, KeepsMemoryForThePartAlone) {
  const Dataset dataset = counting_dataset(4);
  Loader loader(dataset, {.global_batch = 4, .largest_range = 4});
  const std::size_t labels = 4 * sizeof(std::int32_t);
  EXPECT_EQ(loader.batch_bytes(4), 3 * (4 * 4 * sizeof(float) + labels));

  loader.read_only({{4, {{0, 4}, {1, 2}, {0, 2}, {0, 1}}}});

  EXPECT_EQ(loader.batch_bytes(4), 3 * (4 * 2 * sizeof(float) + labels));
  EXPECT_EQ(loader.load({0, 0, 0, 4}).images.size(), 8U);
  EXPECT_EQ(loader.load_test(0, 4).images.size(), 8U);
}

// Another host may read it, and would go on with another image.
TEST(LoaderTest, AFileThatThisHostCannotReadIsNotSkipped) {
  class Source : public ImageSource {
   public:
    void read(std::int64_t image, const Framing& /*frame*/,
              tensor::View<std::uint8_t> out) const override {
      if (image == 2) throw UnreadableFile("2.jpg: cannot be read (Too many open files)");
      std::fill_n(out.data, out.shape.size(), std::uint8_t{0});
    }
    [[nodiscard]] std::string digest() const override { return "unreadable"; }
  };
  Dataset dataset = counting_dataset(4);
  dataset.training.pixels.clear();
  dataset.training.source = std::make_shared<Source>();
  Loader loader(dataset, {.global_batch = 4, .largest_range = 4, .broken = BrokenImages::skip});

  EXPECT_THAT(
      rondo::test::error_text<DataError>([&] { static_cast<void>(loader.load({0, 0, 0, 4})); }),
      testing::HasSubstr("Too many open files"));
}

TEST(LoaderTest, RefusesADataSetThatContradictsItself) {
  Dataset dataset = counting_dataset(10);
  dataset.training.labels.pop_back();
  EXPECT_THROW(Loader(dataset, {}), std::invalid_argument);
  EXPECT_THROW(Loader(counting_dataset(4), {.global_batch = 0}), std::invalid_argument);
  EXPECT_THROW(Loader(counting_dataset(4), {.centre_crop = 0.0}), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::loader_test
