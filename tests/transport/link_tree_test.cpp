// Broadcast, reduce and barrier over links.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::link_tree_test {
namespace {

using shm::Collective;
using test::Buffers;
using test::Ints;
using test::LinkRanks;

class LinkTreeTest : public test::LinkCollectiveTest {
 protected:
  [[nodiscard]] static std::set<std::size_t> roots() { return {0, ranks() / 2, ranks() - 1}; }
};

using TreeBroadcastTest = LinkTreeTest;

TEST_P(TreeBroadcastTest, GivesAllTheRootsDataWithTheClosedFormsMessages) {
  for (const std::size_t root : roots()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> data = test::link_inputs(ranks(), elements());
    std::vector<Posted> posted;
    for (Ints& mine : data) {
      posted.push_back(
          test::posted_of(Collective::broadcast, test::input_of(mine), test::output_of(mine)));
      posted.back().fingerprint.root = static_cast<std::int32_t>(root);
    }

    links.run(algorithms::tree_broadcast, posted, late());

    const Ints expected = test::link_inputs(ranks(), elements())[root];
    for (const Ints& mine : data) EXPECT_EQ(mine, expected);
    test::expect_link_traffic(links, test::LinkAlgorithm::tree, posted, segment_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, TreeBroadcastTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

using TreeReduceTest = LinkTreeTest;

std::vector<Posted> post_reduce(const Buffers<std::int32_t>& in, Ints& out, std::size_t root) {
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < in.size(); ++r) {
    posted.push_back(test::posted_of(Collective::reduce, test::input_of(in[r]),
                                     r == root ? test::output_of(out) : Block{}));
    posted.back().fingerprint.root = static_cast<std::int32_t>(root);
  }
  return posted;
}

TEST_P(TreeReduceTest, GivesTheRootTheSumWithTheClosedFormsMessages) {
  for (const std::size_t root : roots()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    const Buffers<std::int32_t> in = test::link_inputs(ranks(), elements());
    Ints out(elements(), -1);
    const std::vector<Posted> posted = post_reduce(in, out, root);

    links.run(algorithms::tree_reduce, posted, late());

    EXPECT_EQ(out, test::link_sums(ranks(), elements()));
    EXPECT_EQ(in, test::link_inputs(ranks(), elements()));
    test::expect_link_traffic(links, test::LinkAlgorithm::tree, posted, segment_bytes());
  }
}

TEST_P(TreeReduceTest, SumsWhereTheRootsDataIs) {
  for (const std::size_t root : roots()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> data = test::link_inputs(ranks(), elements());

    links.run(algorithms::tree_reduce, post_reduce(data, data[root], root), late());

    for (std::size_t r = 0; r < ranks(); ++r) {
      EXPECT_EQ(data[r], r == root ? test::link_sums(ranks(), elements())
                                   : test::link_inputs(ranks(), elements())[r]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, TreeReduceTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

// Parameter: ranks.
class DisseminationBarrierTest : public testing::TestWithParam<std::size_t> {};

TEST_P(DisseminationBarrierTest, SendsTheClosedFormsMessages) {
  for (const test::Wire wire : {test::Wire::eager, test::Wire::rendezvous, test::Wire::disorder}) {
    LinkRanks links(GetParam(), test::script_of(wire));
    const std::vector<Posted> posted(GetParam(), test::posted_of(Collective::barrier, {}, {}));

    links.run(algorithms::dissemination_barrier, posted, 5);

    test::expect_link_traffic(links, test::LinkAlgorithm::dissemination, posted, 0);
  }
}

TEST_P(DisseminationBarrierTest, HoldsEveryoneUntilTheLastHasCome) {
  const std::size_t ranks = GetParam();
  const Posted posted = test::posted_of(Collective::barrier, {}, {});
  for (std::size_t last = 0; last < ranks; ++last) {
    LinkRanks links(ranks, test::script_of(test::Wire::eager));
    std::deque<OperationStorage<>> barriers(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      barriers[r].start(algorithms::dissemination_barrier, links.group(r), posted);
    }

    bool any_done = false;
    for (std::size_t round = 0; round < 10 * ranks; ++round) {
      for (std::size_t r = 0; r < ranks; ++r) {
        if (r == last) continue;
        links.fabric().link(static_cast<int>(r)).progress();
        any_done =
            any_done || barriers[r].operation()->step(links.group(r), posted) == Progress::done;
      }
    }

    EXPECT_FALSE(any_done);
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, DisseminationBarrierTest,
                         testing::Values(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 13U, 16U));

}  // namespace
}  // namespace rondo::transport::link_tree_test
