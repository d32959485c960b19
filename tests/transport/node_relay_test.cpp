// Allgather through the leaders of nodes: what arrives, what the store sends, who is missing, and
// what a rank that leaves or lies can do.

#include "bootstrap/node_relay.hpp"

#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/store.hpp"

namespace rondo::transport::stores::node_relay_test {
namespace {

using namespace std::chrono_literals;
using bootstrap::Clock;
using bootstrap::Connection;
using bootstrap::NodeRelay;
using bootstrap::Roster;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Rank r is on node r / share; where that is 0, each rank meets the store by itself.
void on_nodes(StoreJob& job, int share, const std::function<void(int, StoreClient&)>& body) {
  on_threads(job.size(), [&](int rank) {
    if (rank != 0) job.join(rank);
    StoreClient& channel = *job.channel(rank);
    if (share > 0) channel.gather_by_node(std::to_string(rank / share));
    body(rank, channel);
  });
}

struct Shape {
  int ranks;
  int share;
};
class NodeRelayShapesTest : public testing::TestWithParam<Shape> {};

TEST_P(NodeRelayShapesTest, GivesAllBlobsInRankOrderRoundAfterRound) {
  const int ranks = GetParam().ranks;
  const int share = GetParam().share;
  constexpr int rounds = 10;
  StoreJob job(ranks);

  on_nodes(job, share, [&](int rank, StoreClient& channel) {
    for (int round = 0; round < rounds; ++round) {
      const auto all = channel.allgather(std::to_string(rank * 100 + round));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)], std::to_string(r * 100 + round));
      }
    }
  });

  // Once for each node, however many ranks it has.
  const int nodes = share == 0 ? ranks : (ranks + share - 1) / share;
  EXPECT_EQ(job.statistics().whole, static_cast<std::uint64_t>(rounds * nodes));
}

INSTANTIATE_TEST_SUITE_P(Shapes, NodeRelayShapesTest,
                         testing::Values(Shape{1, 0}, Shape{2, 0}, Shape{3, 0}, Shape{9, 0},
                                         Shape{1, 1}, Shape{2, 2}, Shape{4, 1}, Shape{5, 2},
                                         Shape{9, 3}, Shape{12, 8}));

// The others of its node have come, and the store knows that.
TEST(NodeRelayTest, TellsEveryoneWhichRankOfANodeDidNotCome) {
  StoreJob job(6, 3s);

  on_nodes(job, 3, [&](int rank, StoreClient& channel) {
    if (rank == 4) return;
    EXPECT_THAT(error_of([&] { (void)channel.allgather("mine"); }),
                AllOf(HasSubstr("rank 4 of 6 did not come in time"), Not(HasSubstr("ranks"))));
  });
}

// A round that a rank takes part in counts, though the others may hear first that it has left.
TEST(NodeRelayTest, ARankThatLeavesAfterARoundFailsItForNobody) {
  for (int leaver = 1; leaver < 4; ++leaver) {
    StoreJob job(4);
    on_nodes(job, 2, [&](int rank, StoreClient& channel) {
      const std::string large(100'000, 'x');
      EXPECT_EQ(channel.allgather(large), std::vector<std::string>(4, large));
      if (rank == leaver) job.channel(rank).reset();
    });
  }
}

// Rank 3 may learn it before it has got to its leader, or afterwards.
TEST(NodeRelayTest, TheOthersLearnThatALeaderHasLeft) {
  StoreJob job(4);

  on_threads(4, [&](int rank) {
    if (rank != 0) job.join(rank);
    StoreClient& channel = *job.channel(rank);
    const std::string error = error_of([&] {
      channel.gather_by_node(std::to_string(rank / 2));
      if (rank == 2) return job.channel(2).reset();
      (void)channel.allgather("mine");
    });
    EXPECT_THAT(error, HasSubstr(rank == 2 ? "no error" : "rank 2 has left already"));
  });
}

// A relay alone, and connections to it that need not be ranks.
class LoneRelayTest : public testing::Test {
 protected:
  LoneRelayTest() : relay_(bootstrap::listen_as_leader(job_, roster_), roster_) {}

  [[nodiscard]] Connection join(std::uint32_t rank, const Roster& as) {
    return {bootstrap::connect_to_leader(job_, as, rank, Clock::now() + 60s, [] { return false; }),
            bootstrap::largest_from_store};
  }

  void turn() {
    std::vector<pollfd> entries;
    relay_.list(entries);
    ::poll(entries.data(), entries.size(), 0);
    relay_.attend(entries, Clock::now());
  }

  std::string job_ = "lone relay of " + std::to_string(::getpid());
  Roster roster_{.token = 7, .ranks = {2, 3, 5}};
  NodeRelay relay_;
};

TEST_F(LoneRelayTest, DropsWhoIsNoRankOfItsNode) {
  Connection stranger = join(4, roster_);
  Connection leader = join(2, roster_);
  Connection three = join(3, roster_);
  turn();
  turn();
  Connection another_three = join(3, roster_);
  turn();
  turn();
  for (Connection* connection : {&stranger, &leader, &another_three}) {
    connection->exchange();
    EXPECT_TRUE(connection->ended());
  }
  three.exchange();
  EXPECT_FALSE(three.ended());
}

}  // namespace
}  // namespace rondo::transport::stores::node_relay_test
