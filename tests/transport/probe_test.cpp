// Whether a link carries messages is found out in a bounded time.

#include "bootstrap/probe.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/memory_link.hpp"

namespace rondo::transport::bootstrap::probe_test {
namespace {

using namespace std::chrono_literals;
using test::MemoryFabric;
using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;

std::string no_failure() { return {}; }

// All ranks at once, each on a thread; rank r is on node nodes[r].
std::vector<ProbeResult> probe_all(MemoryFabric& fabric, const std::vector<int>& nodes,
                                   bool measures, std::chrono::milliseconds limit = 60s,
                                   const std::function<std::string()>& failure = no_failure) {
  std::vector<std::future<ProbeResult>> futures;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    futures.push_back(std::async(std::launch::async, [&, rank] {
      return probe(fabric.link(rank), neighbours_of(rank, nodes), measures, limit, failure);
    }));
  }
  std::vector<ProbeResult> results;
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

TEST(NeighboursTest, AreOfTheNextNodeAndThePrevious) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};

  EXPECT_EQ(neighbours_of(0, nodes),
            (Neighbours{.next = 2, .previous = {4}, .is_leader = true, .leader_of_previous = 4}));
  EXPECT_EQ(neighbours_of(5, nodes),
            (Neighbours{.next = 1, .previous = {3}, .is_leader = false, .leader_of_previous = 2}));
}

// Whoever is sent to expects it, also if nodes have unlike numbers of ranks.
TEST(NeighboursTest, AgreeOnWhoSendsToWhom) {
  for (const std::vector<int>& nodes :
       {std::vector{0, 1}, {0, 0, 0, 1}, {0, 1, 1, 2, 2, 2}, {0, 1, 0, 1, 2, 0, 0}}) {
    int expected = 0;
    for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
      for (const int from : neighbours_of(rank, nodes).previous) {
        EXPECT_EQ(neighbours_of(from, nodes).next, rank);
        ++expected;
      }
    }
    EXPECT_EQ(expected, static_cast<int>(nodes.size()));
  }
}

TEST(ProbeTest, FindsNothingWrongWithALinkThatWorks) {
  const std::vector<int> nodes = {0, 0, 0, 1, 2, 2};
  MemoryFabric fabric(6);

  const auto results = probe_all(fabric, nodes, false);

  EXPECT_THAT(results,
              Each(AllOf(Field(&ProbeResult::problem, ""), Field(&ProbeResult::nanoseconds, 0U))));
  EXPECT_EQ(fabric.pending(), 0);
}

TEST(ProbeTest, LetsTheFirstRanksOfNodesMeasureTheSpeed) {
  const std::vector<int> nodes = {0, 0, 1, 1};
  MemoryFabric fabric(4);

  const auto results = probe_all(fabric, nodes, true);

  EXPECT_THAT(results, Each(Field(&ProbeResult::problem, "")));
  EXPECT_GT(results[0].nanoseconds, 0U);
  EXPECT_EQ(results[1].nanoseconds, 0U);
  EXPECT_GT(results[2].nanoseconds, 0U);
  EXPECT_EQ(fabric.pending(), 0);
}

TEST(ProbeTest, NamesTheRankThatAMessageFailsTo) {
  MemoryFabric fabric(2);
  fabric.cut(0, 1);

  const auto results = probe_all(fabric, {0, 1}, false);

  EXPECT_THAT(results[0].problem, HasSubstr("did not carry a message to or from rank 1: "));
  EXPECT_THAT(results[1].problem, HasSubstr("did not carry a message to or from rank 0: "));
  EXPECT_EQ(fabric.pending(), 0);
}

// As the store tells when a rank has ended.
TEST(ProbeTest, EndsWithoutWaitingForItsLimitWhenTheJobHasFailed) {
  MemoryFabric fabric(2, {.delay = [](int, int, std::uint64_t) { return 2'000'000'000; }});

  const auto results = probe_all(fabric, {0, 1}, false, 24h, [] { return "lost rank 1"; });

  EXPECT_THAT(results, Each(AllOf(Field(&ProbeResult::problem, "lost rank 1"),
                                  Field(&ProbeResult::silent, false))));
  EXPECT_EQ(fabric.pending(), 0);
}

// The messages are sent, and never seen.
TEST(ProbeTest, EndsWhenNothingArrives) {
  constexpr int never = 2'000'000'000;
  MemoryFabric fabric(2, {.delay = [](int, int, std::uint64_t) { return never; }});

  const auto results = probe_all(fabric, {0, 1}, false, 20ms);

  for (const ProbeResult& result : results) {
    EXPECT_THAT(result.problem, HasSubstr("within 20 ms"));
  }
  EXPECT_EQ(fabric.pending(), 0);
}

TEST(ProbeResultsTest, TellOfSilenceWhereNothingElseIsWrong) {
  const ProbeResult good;
  const ProbeResult silent{.problem = "nothing came", .silent = true};
  const ProbeResult failed{.problem = "unreachable"};

  EXPECT_FALSE(carries_nothing({good, good}));
  EXPECT_TRUE(carries_nothing({good, silent, silent}));
  // Its neighbours are silent because of it: another library may connect.
  EXPECT_FALSE(carries_nothing({silent, failed, silent}));
}

TEST(ProbeResultsTest, NameTheRankThatKnowsWhy) {
  const ProbeResult good;
  const ProbeResult silent{.problem = "nothing came", .silent = true};
  const ProbeResult failed{.problem = "unreachable"};

  EXPECT_EQ(first_cause({good, good}), 2U);
  EXPECT_EQ(first_cause({good, silent, silent}), 1U);
  EXPECT_EQ(first_cause({silent, good, failed, failed}), 2U);
}

}  // namespace
}  // namespace rondo::transport::bootstrap::probe_test
