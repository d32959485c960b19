// Allreduce over links: the sums, the bits, the messages.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::link_allreduce_test {
namespace {

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

}  // namespace
}  // namespace rondo::transport::link_allreduce_test
