// How a batch is shared among ranks: a pure function, tested over all small cases.

#include "trainer/share.hpp"

#include <gtest/gtest.h>

namespace rondo::train {
namespace {

TEST(ShareTest, SharesAreAdjacentAndCoverTheBatch) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (std::int64_t samples = 0; samples <= 200; ++samples) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(samples, rank, ranks);
        ASSERT_EQ(share.first, next);
        next = share.last;
      }
      ASSERT_EQ(next, samples);
    }
  }
}

TEST(ShareTest, SharesDifferByOneAtMostAndTheLastIsTheLargest) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (std::int64_t samples = 0; samples <= 200; ++samples) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t size = share_of(samples, rank, ranks).size();
        ASSERT_GE(size, samples / ranks);
        ASSERT_LE(size, share_of(samples, ranks - 1, ranks).size());
        ASSERT_LE(size, samples / ranks + 1);
        ASSERT_LE(share_of(samples, 0, ranks).size(), size);
      }
    }
  }
}

TEST(ShareTest, LeavesRanksWithoutSamplesWhenThereAreTooFew) {
  EXPECT_EQ(share_of(1, 0, 2).size(), 0);
  EXPECT_EQ(share_of(1, 1, 2).size(), 1);
}

}  // namespace
}  // namespace rondo::train
