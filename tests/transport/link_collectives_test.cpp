// Collectives over links: the results, the bits, the messages.

#include <cstddef>
#include <initializer_list>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "support/link_collective_test.hpp"
#include "support/link_data.hpp"

namespace rondo::transport::link_collectives_test {
namespace {

using shm::Collective;
using test::LinkAlgorithm;
using test::LinkRanks;
using Floats = std::vector<std::vector<float>>;  // of each rank

class LinkCollectivesTest : public test::LinkCollectiveTest {
 protected:
  // Makes the calls of the table with every kind of root: the results, and the closed form's
  // messages.
  static void expect_calls(const Algorithm& algorithm, LinkAlgorithm closed_form,
                           std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const test::Call& call = test::call_named(name);
      for (const std::size_t root : roots(call)) expect_call(algorithm, closed_form, call, root);
    }
  }

  // Floats whose sum depends on the order in which the ranks are joined.
  [[nodiscard]] static Floats sums_of_floats(const Algorithm& algorithm) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Floats data(ranks());
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < elements(); ++i) {
        data[r].push_back(1.0F / static_cast<float>(r * 31 + i % 97 + 1));
      }
      const Block block = as_block(Strided<float>(std::span(data[r])));
      posted.push_back(test::posted_of(Collective::allreduce, as_const_block(block), block));
    }
    links.run(algorithm, posted, late());
    return data;
  }
  static void expect_the_same_bits(const Floats& data) {
    for (const auto& mine : data) EXPECT_EQ(mine, data[0]);
  }

 private:
  [[nodiscard]] static std::set<std::size_t> roots(const test::Call& call) {
    if (!call.has_root()) return {0};
    return {0, ranks() / 2, ranks() - 1};
  }
  // Where ranks have shares, these are shorter.
  [[nodiscard]] static std::size_t elements_of(const test::Call& call) {
    if (call.shares == test::Shares::rows) return elements() / 28;
    if (call.has_shares()) return elements() / 7;
    return call.kind == test::CallKind::alltoall ? elements() / 3 : elements();
  }
  static void expect_call(const Algorithm& algorithm, LinkAlgorithm closed_form,
                          const test::Call& call, std::size_t root) {
    LinkRanks links(ranks(), script(), segment_bytes());
    test::PostedCall posted(call, ranks(), elements_of(call), root);

    links.run(algorithm, posted.posted(), late());

    EXPECT_EQ(posted.fault(), "");
    EXPECT_EQ(links.fabric().pending(), 0U);
    test::expect_link_traffic(links, closed_form, posted.posted(), segment_bytes());
  }
};

TEST_P(LinkCollectivesTest, RingAllreduce) {
  expect_calls(algorithms::ring, LinkAlgorithm::ring, {"Allreduce", "AllreduceInPlace"});
  expect_the_same_bits(sums_of_floats(algorithms::ring));
}

// Halving joins the ranks as doubling does.
TEST_P(LinkCollectivesTest, DoublingAndHalvingAllreduce) {
  expect_calls(algorithms::doubling_allreduce, LinkAlgorithm::doubling,
               {"Allreduce", "AllreduceInPlace"});
  expect_calls(algorithms::halving_allreduce, LinkAlgorithm::halving,
               {"Allreduce", "AllreduceInPlace"});
  const Floats doubled = sums_of_floats(algorithms::doubling_allreduce);
  expect_the_same_bits(doubled);
  EXPECT_EQ(sums_of_floats(algorithms::halving_allreduce), doubled);
}

TEST_P(LinkCollectivesTest, TreeBroadcastAndReduce) {
  expect_calls(algorithms::tree_broadcast, LinkAlgorithm::tree, {"Broadcast"});
  expect_calls(algorithms::tree_reduce, LinkAlgorithm::tree, {"Reduce", "ReduceInPlace"});
}

TEST_P(LinkCollectivesTest, RingAllgather) {
  expect_calls(algorithms::ring, LinkAlgorithm::ring,
               {"Allgather", "AllgatherInPlace", "AllgatherOfUnevenShares", "AllgatherOfRows",
                "AllgatherOfRowsInPlace", "AllgatherOfEqualRows"});
}

TEST_P(LinkCollectivesTest, RingReduceScatter) {
  expect_calls(algorithms::ring, LinkAlgorithm::ring,
               {"ReduceScatter", "ReduceScatterInPlace", "ReduceScatterOfUnevenShares",
                "ReduceScatterOfUnevenSharesInPlace", "ReduceScatterForOneRank",
                "ReduceScatterOfRows", "ReduceScatterOfRowsInPlace", "ReduceScatterOfEqualRows"});
}

TEST_P(LinkCollectivesTest, PairwiseAlltoall) {
  expect_calls(algorithms::pairwise_alltoall, LinkAlgorithm::pairwise, {"Alltoall"});
}

TEST_P(LinkCollectivesTest, DisseminationBarrier) {
  expect_calls(algorithms::dissemination_barrier, LinkAlgorithm::dissemination, {"Barrier"});
}

INSTANTIATE_TEST_SUITE_P(Memory, LinkCollectivesTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

}  // namespace
}  // namespace rondo::transport::link_collectives_test
