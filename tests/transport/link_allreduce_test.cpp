// Allreduce over links: the sums, the bits, the messages.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "collective/doubling_allreduce.hpp"
#include "collective/link_traffic.hpp"
#include "collective/ring_allreduce.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport {
namespace {

using test::LinkCollectiveTest;
using test::LinkRanks;

template <typename T>
using Buffers = std::vector<std::vector<T>>;

// Element i of what `rank` gives.
std::int32_t value(std::size_t rank, std::size_t i) {
  return static_cast<std::int32_t>(rank * 1'000'003 + i);
}

Buffers<std::int32_t> inputs(std::size_t ranks, std::size_t elements) {
  Buffers<std::int32_t> data(ranks, std::vector<std::int32_t>(elements));
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < elements; ++i) data[r][i] = value(r, i);
  }
  return data;
}

std::vector<std::int32_t> sums(std::size_t ranks, std::size_t elements) {
  std::vector<std::int32_t> sum(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    for (std::size_t r = 0; r < ranks; ++r) sum[i] += value(r, i);
  }
  return sum;
}

template <typename T>
std::vector<Posted> post(Buffers<T>& in, Buffers<T>& out) {
  std::vector<Posted> posted(in.size());
  for (std::size_t r = 0; r < in.size(); ++r) {
    posted[r].sequence = 17;
    posted[r].fingerprint = {
        .collective = shm::Collective::allreduce, .type = type_of<T>(), .count = in[r].size()};
    posted[r].input = as_const_block(Strided<const T>(std::span<const T>(in[r])));
    posted[r].output = as_block(Strided<T>(std::span<T>(out[r])));
  }
  return posted;
}

class LinkAllreduceTest : public LinkCollectiveTest {
 protected:
  template <typename Op>
  void sums_in_place() {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> data = inputs(ranks(), elements());

    links.run<Op>(post(data, data), late());

    for (const auto& mine : data) EXPECT_EQ(mine, sums(ranks(), elements()));
    EXPECT_EQ(links.fabric().pending(), 0U);
  }

  template <typename Op>
  void sums_out_of_place() {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> in = inputs(ranks(), elements());
    Buffers<std::int32_t> out(ranks(), std::vector<std::int32_t>(elements(), -1));

    links.run<Op>(post(in, out), late());

    for (const auto& mine : out) EXPECT_EQ(mine, sums(ranks(), elements()));
    EXPECT_EQ(in, inputs(ranks(), elements()));
  }

  template <typename Op>
  void gives_all_the_same_bits() {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<float> data(ranks(), std::vector<float>(elements()));
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < elements(); ++i) {
        data[r][i] = 1.0F / static_cast<float>(r * 31 + i % 97 + 1);
      }
    }

    links.run<Op>(post(data, data), late());

    for (const auto& mine : data) EXPECT_EQ(mine, data[0]);
  }

  template <typename Op>
  void sends_what_the_closed_form_says(LinkAlgorithm algorithm) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> data = inputs(ranks(), elements());
    const std::vector<Posted> posted = post(data, data);

    links.run<Op>(posted, late());

    for (std::size_t r = 0; r < ranks(); ++r) {
      const Counters& counters = links.counters(r);
      EXPECT_EQ((LinkTraffic{counters.sent_messages, counters.sent_bytes}),
                link_traffic_of(algorithm, posted[r], r, ranks(), segment_bytes()));
      EXPECT_EQ(counters.fabric_bytes, counters.sent_bytes);
      EXPECT_EQ(counters.operations, 1U);
    }
  }
};

using RingAllreduceTest = LinkAllreduceTest;

TEST_P(RingAllreduceTest, SumsInPlace) { sums_in_place<RingAllreduce>(); }
TEST_P(RingAllreduceTest, SumsOutOfPlaceAndLeavesTheInput) { sums_out_of_place<RingAllreduce>(); }
TEST_P(RingAllreduceTest, GivesAllTheSameBits) { gives_all_the_same_bits<RingAllreduce>(); }
TEST_P(RingAllreduceTest, SendsWhatTheClosedFormSays) {
  sends_what_the_closed_form_says<RingAllreduce>(LinkAlgorithm::ring);
}

INSTANTIATE_TEST_SUITE_P(Memory, RingAllreduceTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

using DoublingAllreduceTest = LinkAllreduceTest;

TEST_P(DoublingAllreduceTest, SumsInPlace) { sums_in_place<DoublingAllreduce>(); }
TEST_P(DoublingAllreduceTest, SumsOutOfPlaceAndLeavesTheInput) {
  sums_out_of_place<DoublingAllreduce>();
}
TEST_P(DoublingAllreduceTest, GivesAllTheSameBits) { gives_all_the_same_bits<DoublingAllreduce>(); }
TEST_P(DoublingAllreduceTest, SendsWhatTheClosedFormSays) {
  sends_what_the_closed_form_says<DoublingAllreduce>(LinkAlgorithm::doubling);
}

INSTANTIATE_TEST_SUITE_P(Memory, DoublingAllreduceTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

}  // namespace
}  // namespace rondo::transport
