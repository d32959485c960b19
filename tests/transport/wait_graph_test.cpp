// Who is at fault that ranks wait.

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verdict/wait_graph.hpp"

namespace rondo::transport::bootstrap::wait_graph_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(WaitGraphTest, AMissingRankThatDoesNotWaitIsAtFault) {
  WaitGraph graph(4);
  graph.set(1, std::array{0});

  EXPECT_EQ(graph.fault(std::array{2}), 2);
  EXPECT_EQ(graph.fault(std::array{1, 2}), 2);
  EXPECT_EQ(graph.fault(std::array{3, 2}), 3);
}

TEST(WaitGraphTest, OfRanksThatWaitTheNearestThatTheyWaitForIs) {
  WaitGraph graph(6);
  graph.set(5, std::array{4});
  graph.set(4, std::array{5, 3});
  graph.set(3, std::array{2, 1});
  graph.set(2, std::array{0});

  EXPECT_EQ(graph.fault(std::array{5}), 1);
  graph.set(4, {});
  EXPECT_EQ(graph.fault(std::array{5}), 4) << "it goes on";
}

TEST(WaitGraphTest, OfRanksThatWaitForEachOtherTheFirstIs) {
  WaitGraph graph(3);
  graph.set(0, std::array{1});
  graph.set(1, std::array{0});

  EXPECT_EQ(graph.fault(std::array{1}), 1);
  EXPECT_EQ(graph.fault({}), -1);
}

// Each rank but 12 waits for all others, and tells of the first of them.
TEST(WaitGraphTest, ReachesTheRanksThatAListThatWasCutLeavesOut) {
  constexpr int ranks = 16;
  constexpr int stopped = 12;
  const auto told_by = [](int rank) {
    std::vector<int> others;
    for (int other = 0; other < ranks; ++other) {
      if (other != rank) others.push_back(other);
    }
    return decode_ranks(encode_ranks(others));
  };
  WaitGraph graph(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != stopped) graph.set(rank, told_by(rank));
  }

  EXPECT_EQ(graph.fault(told_by(0)), stopped);
  EXPECT_EQ(graph.fault(std::array{1}), stopped);
  graph.set(stopped, told_by(stopped));
  EXPECT_EQ(graph.fault(told_by(0)), 1) << "all wait for each other";
}

// What is known comes first.
TEST(WaitGraphTest, GoesThroughAllListsBeforeItTakesOneForCut) {
  WaitGraph graph(16);
  graph.set(1, std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9});
  for (int rank = 2; rank < 9; ++rank) graph.set(rank, std::array{1});
  graph.set(9, std::array{15});

  EXPECT_EQ(graph.fault(std::array{1}), 15);
}

TEST(WaitGraphTest, LeavesOutRanksThatTheJobDoesNotHave) {
  WaitGraph graph(2);
  graph.set(7, std::array{0});
  graph.set(-1, std::array{0});
  graph.set(0, std::array{2, -1});

  EXPECT_EQ(graph.fault(std::array{9, 0}), 0);
  EXPECT_EQ(graph.fault(std::array{9}), -1);
}

TEST(WaitGraphTest, TellsTheFirstRanksAndRefusesWhatNobodyTells) {
  EXPECT_THAT(decode_ranks(encode_ranks(std::array{3, 0})), ElementsAre(3, 0));
  EXPECT_THAT(decode_ranks(encode_ranks({})), IsEmpty());
  EXPECT_EQ(decode_ranks(encode_ranks(std::vector<int>(100, 5))).size(), most_awaited);
  EXPECT_THAT(decode_ranks("nonsense"), IsEmpty());
  EXPECT_THAT(decode_ranks(std::string("\x09\0\0\0", 4) + std::string(36, '\0')), IsEmpty());
}

}  // namespace
}  // namespace rondo::transport::bootstrap::wait_graph_test
