// The order of an epoch: a permutation, keyed, and fair.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/epoch_order.hpp"

namespace rondo::train::epoch_order_test {
namespace {

std::vector<std::int64_t> order_of(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  EpochOrder order(samples, seed);
  order.begin(epoch);
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < samples; ++i) places.push_back(order[i]);
  return places;
}

TEST(EpochOrderTest, IsAPermutation) {
  for (const std::int64_t samples : {0, 1, 2, 3, 1000}) {
    std::vector<std::int64_t> places = order_of(samples, 7, 2);

    std::ranges::sort(places);

    for (std::int64_t i = 0; i < samples; ++i) EXPECT_EQ(places[static_cast<std::size_t>(i)], i);
  }
}

TEST(EpochOrderTest, DoesNotDependOnTheEpochsBefore) {
  EpochOrder order(100, 5);
  order.begin(0);
  order.begin(9);
  order.begin(4);

  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < 100; ++i) places.push_back(order[i]);

  EXPECT_EQ(places, order_of(100, 5, 4));
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

}  // namespace
}  // namespace rondo::train::epoch_order_test
