// The boxes that ranks send to each other: every pair of layouts, on arrays of element numbers.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/redistribution.hpp>

#include "train/layouts.hpp"

namespace rondo::train::redistribution_test {
namespace {

using testing::ElementsAre;

std::vector<Redistribution> plans_of(const Partition& from, const Partition& to) {
  std::vector<Redistribution> plans;
  for (int rank = 0; rank < from.ranks(); ++rank) plans.push_back(redistribution(from, to, rank));
  return plans;
}

/// Calls check(from, to) for all pairs of layouts of all arrays.
template <class Check>
void for_each_pair(Check check) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const tensor::Shape& extents : test::small_arrays()) {
      const std::vector<test::Layout> layouts = test::layouts_of(extents, ranks);
      for (const test::Layout& from : layouts) {
        for (const test::Layout& to : layouts) {
          SCOPED_TRACE(from.name + " to " + to.name);
          check(from.partition, to.partition);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// How often each element reaches a rank, from others or itself.
test::ElementArray<int> arrivals(const tensor::Shape& extents, const Redistribution& plan) {
  test::ElementArray<int> count(extents);
  const auto add = [&](auto... index) { ++count.at(index...); };
  test::for_each_element(plan.kept, add);
  for (const Transfer& transfer : plan.receives) test::for_each_element(transfer.box, add);
  return count;
}

TEST(RedistributionTest, GivesEveryRankItsBoxEachElementOnce) {
  for_each_pair([](const Partition& from, const Partition& to) {
    for (int rank = 0; rank < from.ranks(); ++rank) {
      test::ElementArray<int> wanted(from.extents());
      test::for_each_element(to.box_of(rank), [&](auto... index) { wanted.at(index...) = 1; });
      const Redistribution plan = redistribution(from, to, rank);
      ASSERT_EQ(arrivals(from.extents(), plan).values(), wanted.values());
    }
  });
}

TEST(RedistributionTest, SendsWhatTheSenderHoldsAndThePeerExpects) {
  for_each_pair([](const Partition& from, const Partition& to) {
    const std::vector<Redistribution> plans = plans_of(from, to);
    std::size_t sends = 0;
    std::size_t receives = 0;
    for (int rank = 0; rank < from.ranks(); ++rank) {
      const Redistribution& plan = plans[static_cast<std::size_t>(rank)];
      sends += plan.sends.size();
      receives += plan.receives.size();
      for (const auto& [peer, box] : plan.sends) {
        ASSERT_NE(peer, rank);
        ASSERT_FALSE(box.empty());
        ASSERT_TRUE(from.box_of(rank).contains(box));
        const auto& expected = plans[static_cast<std::size_t>(peer)].receives;
        ASSERT_EQ(std::ranges::count(expected, Transfer{rank, box}), 1);
      }
    }
    ASSERT_EQ(sends, receives);
  });
}

TEST(RedistributionTest, MeetsEachPeerOnceAndBeginsWithNeighbours) {
  for_each_pair([](const Partition& from, const Partition& to) {
    for (int rank = 0; rank < from.ranks(); ++rank) {
      const auto distance = [&](const Transfer& t, int sign) {
        return (sign * (t.peer - rank) + from.ranks()) % from.ranks();
      };
      const Redistribution plan = redistribution(from, to, rank);
      int last = 0;
      for (const Transfer& transfer : plan.sends) {
        ASSERT_GT(distance(transfer, 1), last);
        last = distance(transfer, 1);
      }
      last = 0;
      for (const Transfer& transfer : plan.receives) {
        ASSERT_GT(distance(transfer, -1), last);
        last = distance(transfer, -1);
      }
    }
  });
}

TEST(RedistributionTest, MovesAsManyWordsAsTheClosedFormSays) {
  for_each_pair([](const Partition& from, const Partition& to) {
    std::int64_t sent = 0;
    for (int rank = 0; rank < from.ranks(); ++rank) {
      const Redistribution plan = redistribution(from, to, rank);
      ASSERT_EQ(plan.elements_received(), elements_received(from, to, rank));
      sent += plan.elements_sent();
    }
    ASSERT_EQ(sent, elements_moved(from, to));
  });
}

TEST(RedistributionTest, MovesNothingBetweenEqualLayouts) {
  for_each_pair([](const Partition& from, const Partition& to) {
    if (from.boxes() != to.boxes()) return;
    ASSERT_EQ(elements_moved(from, to), 0);
    ASSERT_TRUE(redistribution(from, to, 0).sends.empty());
  });
}

TEST(RedistributionTest, FromSamplesToChannelsEveryRankSendsItsPartButOne) {
  const tensor::Shape extents{.n = 8, .h = 3, .w = 3, .c = 12};
  for (const int p : {2, 4}) {
    for (int rank = 0; rank < p; ++rank) {
      const Redistribution plan =
          redistribution(by_sample(extents, p), by_channel(extents, {.pr = p}), rank);
      EXPECT_EQ(plan.elements_sent(), extents.size() / p * (p - 1) / p);
    }
  }
}

TEST(RedistributionTest, StaysWithinTheGroupsOfAGrid) {
  const tensor::Shape extents{.n = 7, .h = 5, .w = 5, .c = 7};
  for (const ProcessGrid& grid : test::grids_of(6)) {
    for (int rank = 0; rank < 6; ++rank) {
      const Redistribution plan =
          redistribution(by_sample(extents, 6), by_channel(extents, grid), rank);
      for (const Transfer& sent : plan.sends) {
        ASSERT_EQ(grid.replica_of(sent.peer), grid.replica_of(rank));
      }
    }
  }
}

TEST(RedistributionTest, SwapsBlocksAfterAnOddNumberOfStationaryWLayers) {
  const tensor::Shape extents{.n = 1, .h = 2, .w = 2, .c = 8};
  const Partition natural = by_channel(extents, {.pr = 4});
  const Partition transposed = output_of(natural, {.channels = 2, .filters = 2}, extents);

  EXPECT_THAT(redistribution(transposed, natural, 0).sends, ElementsAre());
  EXPECT_THAT(redistribution(transposed, natural, 1).sends,
              ElementsAre(Transfer{2, natural.box_of(2)}));
  EXPECT_THAT(redistribution(transposed, natural, 1).receives,
              ElementsAre(Transfer{2, natural.box_of(1)}));
  EXPECT_EQ(elements_moved(transposed, natural), extents.size() / 2);
}

TEST(RedistributionTest, DealsReceiversOutToTheHoldersOfABlock) {
  const tensor::Shape extents{.n = 2, .h = 1, .w = 1, .c = 4};
  const Partition from(extents, {.n = 2}, {0, 0, 1, 1});
  const Partition to(extents, {.n = 2}, {1, 1, 0, 0});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(redistribution(from, to, rank).elements_sent(), 4) << rank;
  }
}

TEST(RedistributionTest, HoldersOfABlockDifferByOneBoxAtMost) {
  for_each_pair([](const Partition& from, const Partition& to) {
    const std::vector<Redistribution> plans = plans_of(from, to);
    std::int64_t largest = 0;
    for (const Redistribution& plan : plans) {
      for (const Transfer& sent : plan.sends) largest = std::max(largest, sent.box.size());
    }
    for (int block = 0; block < from.blocks(); ++block) {
      std::vector<std::int64_t> loads;
      for (const int rank : from.ranks_of(block)) {
        loads.push_back(plans[static_cast<std::size_t>(rank)].elements_sent());
      }
      const auto [least, most] = std::ranges::minmax(loads);
      ASSERT_LE(most - least, largest);
    }
  });
}

TEST(RedistributionTest, ServesBoxesThatOverlap) {
  const tensor::Shape extents{.n = 1, .h = 6, .w = 1, .c = 1};
  const Partition rows = by_space(extents, {.pr = 3}, 3, 1);
  const auto box = [](std::int64_t first, std::int64_t last) {
    return Box{{0, 1}, {first, last}, {0, 1}, {0, 1}};
  };
  const std::vector<Box> wanted{box(0, 5), box(1, 2), box(0, 0)};

  const Redistribution first = redistribution(rows, wanted, 0);
  const Redistribution last = redistribution(rows, wanted, 2);

  EXPECT_EQ(first.kept, box(0, 2));
  EXPECT_THAT(first.sends, ElementsAre(Transfer{1, box(1, 2)}));
  EXPECT_THAT(first.receives, ElementsAre(Transfer{2, box(4, 5)}, Transfer{1, box(2, 4)}));
  EXPECT_THAT(last.sends, ElementsAre(Transfer{0, box(4, 5)}));
  EXPECT_TRUE(last.kept.empty());
}

TEST(RedistributionTest, RefusesPartitionsOfDifferentArraysOrRanks) {
  const tensor::Shape extents{.n = 4, .h = 1, .w = 1, .c = 4};
  const Partition from = by_sample(extents, 2);
  EXPECT_THROW(static_cast<void>(redistribution(from, by_sample(extents.with_n(5), 2), 0)),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(elements_moved(from, by_sample(extents, 4))),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(redistribution(from, std::vector<Box>(3), 0)),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::redistribution_test
