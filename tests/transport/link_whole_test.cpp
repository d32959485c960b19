// Allreduce, broadcast and reduce over links: the sums, the bits, the messages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::link_whole_test {
namespace {

using shm::Collective;
using test::Buffers;
using test::Ints;
using test::LinkRanks;

template <typename T>
std::vector<Posted> post(const Buffers<T>& in, Buffers<T>& out) {
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < in.size(); ++r) {
    posted.push_back(test::posted_of(shm::Collective::allreduce, test::input_of(in[r]),
                                     test::output_of(out[r])));
  }
  return posted;
}

class LinkAllreduceTest : public test::LinkCollectiveTest {
 protected:
  void sums_in_place(const Algorithm& algorithm, test::LinkAlgorithm closed_form) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> data = test::link_inputs(ranks(), elements());
    const std::vector<Posted> posted = post(data, data);

    links.run(algorithm, posted, late());

    const Ints sums = test::link_sums(ranks(), elements());
    for (const Ints& mine : data) EXPECT_EQ(mine, sums);
    EXPECT_EQ(links.fabric().pending(), 0U);
    test::expect_link_traffic(links, closed_form, posted, segment_bytes());
  }

  void sums_out_of_place(const Algorithm& algorithm) {
    LinkRanks links(ranks(), script(), segment_bytes());
    const Buffers<std::int32_t> in = test::link_inputs(ranks(), elements());
    Buffers<std::int32_t> out(ranks(), Ints(elements(), -1));

    links.run(algorithm, post(in, out), late());

    const Ints sums = test::link_sums(ranks(), elements());
    for (const Ints& mine : out) EXPECT_EQ(mine, sums);
    EXPECT_EQ(in, test::link_inputs(ranks(), elements()));
  }

  void gives_all_the_same_bits(const Algorithm& algorithm) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<float> data(ranks(), std::vector<float>(elements()));
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < elements(); ++i) {
        data[r][i] = 1.0F / static_cast<float>(r * 31 + i % 97 + 1);
      }
    }

    links.run(algorithm, post(data, data), late());

    for (const auto& mine : data) EXPECT_EQ(mine, data[0]);
  }
};

using RingAllreduceTest = LinkAllreduceTest;

TEST_P(RingAllreduceTest, SumsInPlaceWithTheClosedFormsMessages) {
  sums_in_place(algorithms::ring, test::LinkAlgorithm::ring);
}
TEST_P(RingAllreduceTest, SumsOutOfPlaceAndLeavesTheInput) { sums_out_of_place(algorithms::ring); }
TEST_P(RingAllreduceTest, GivesAllTheSameBits) { gives_all_the_same_bits(algorithms::ring); }

INSTANTIATE_TEST_SUITE_P(Memory, RingAllreduceTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

using DoublingAllreduceTest = LinkAllreduceTest;

TEST_P(DoublingAllreduceTest, SumsInPlaceWithTheClosedFormsMessages) {
  sums_in_place(algorithms::doubling_allreduce, test::LinkAlgorithm::doubling);
}
TEST_P(DoublingAllreduceTest, SumsOutOfPlaceAndLeavesTheInput) {
  sums_out_of_place(algorithms::doubling_allreduce);
}
TEST_P(DoublingAllreduceTest, GivesAllTheSameBits) {
  gives_all_the_same_bits(algorithms::doubling_allreduce);
}

INSTANTIATE_TEST_SUITE_P(Memory, DoublingAllreduceTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

class HalvingAllreduceTest : public LinkAllreduceTest {
 protected:
  // Sums of data that depend on the order in which the ranks are joined.
  [[nodiscard]] static Buffers<float> sums_by(const Algorithm& algorithm) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<float> data(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < elements(); ++i) {
        data[r].push_back(1.0F / static_cast<float>(r * 31 + i % 97 + 1));
      }
    }
    links.run(algorithm, post(data, data), late());
    return data;
  }
};

TEST_P(HalvingAllreduceTest, SumsInPlaceWithTheClosedFormsMessages) {
  sums_in_place(algorithms::halving_allreduce, test::LinkAlgorithm::halving);
}
TEST_P(HalvingAllreduceTest, SumsOutOfPlaceAndLeavesTheInput) {
  sums_out_of_place(algorithms::halving_allreduce);
}
TEST_P(HalvingAllreduceTest, GivesAllTheSameBits) {
  gives_all_the_same_bits(algorithms::halving_allreduce);
}
TEST_P(HalvingAllreduceTest, GivesTheBitsOfDoubling) {
  EXPECT_EQ(sums_by(algorithms::halving_allreduce), sums_by(algorithms::doubling_allreduce));
}

INSTANTIATE_TEST_SUITE_P(Memory, HalvingAllreduceTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

// Broadcast, reduce and barrier over links.

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

    const Ints expected = test::link_input(root, elements());
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
      EXPECT_EQ(data[r],
                r == root ? test::link_sums(ranks(), elements()) : test::link_input(r, elements()));
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
}  // namespace rondo::transport::link_whole_test
