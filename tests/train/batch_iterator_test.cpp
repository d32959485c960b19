// A rank's samples in steps and micro-batches.

#include "trainer/batch_iterator.hpp"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>

namespace rondo::train::batch_iterator_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;

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
    EXPECT_THAT(labels_of(micro_batches, step), ElementsAreArray(labels_of(whole, step))) << step;
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

  EXPECT_THAT(
      [&] { BatchIterator(dataset, {.loader = {.global_batch = 6}, .whole_batches = true}); },
      ThrowsMessage<ConfigError>(HasSubstr("train.global_batch: 6 samples are more than the 4")));
}

TEST(BatchIteratorTest, WorkersHaveSeedsOfTheirOwn) {
  EXPECT_EQ(worker_seed(1, 0), worker_seed(1, 0));
  EXPECT_NE(worker_seed(1, 0), worker_seed(1, 1));
  EXPECT_NE(worker_seed(1, 0), worker_seed(2, 0));
}

}  // namespace
}  // namespace rondo::train::batch_iterator_test
