// Which ranks average among themselves.

#include "schemes/make_scheme.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::train::rank_groups_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<transport::RankInfo> ranks_on(const std::vector<int>& nodes) {
  std::vector<transport::RankInfo> ranks;
  for (const int node : nodes) ranks.push_back({.node = node});
  return ranks;
}

TEST(RankGroupsTest, AreTheNodesByDefault) {
  const std::vector<RankGroups> levels = rank_groups({}, ranks_on({0, 0, 1, 0, 1}));

  ASSERT_EQ(levels.size(), 1U);
  EXPECT_EQ(levels[0].period, 4);
  EXPECT_THAT(levels[0].group_of, ElementsAre(0, 0, 1, 0, 1));
}

TEST(RankGroupsTest, AreConsecutiveRanksOfAGivenSize) {
  Experiment experiment;
  experiment.update.group = 2;
  experiment.update.levels = {{8, 4.0}};
  const std::vector<RankGroups> levels = rank_groups(experiment, ranks_on({0, 0, 0, 0, 0}));

  ASSERT_EQ(levels.size(), 2U);
  EXPECT_THAT(levels[0].group_of, ElementsAre(0, 0, 1, 1, 2));
  EXPECT_EQ(levels[1].period, 8);
  EXPECT_THAT(levels[1].group_of, ElementsAre(0, 0, 0, 0, 1));
}

TEST(RankGroupsTest, RefusesGroupsThatCutThroughNodes) {
  Experiment experiment;
  experiment.update.levels = {{8, 2.0}};

  EXPECT_THAT([&] { static_cast<void>(rank_groups(experiment, ranks_on({0, 0, 0, 1}))); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("update.levels: the groups of period 8 cut through one of period 4, at "
                            "rank 2")));
}

}  // namespace
}  // namespace rondo::train::rank_groups_test
