// Random numbers: the order of an epoch is a permutation, keyed and fair, and so are the numbers of
// augmentations.

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/loader.hpp>

#include "data/random.hpp"

namespace rondo::train::random_test {
namespace {

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

}  // namespace
}  // namespace rondo::train::random_test
