// Allgather, reduce_scatter and alltoall over links: whatever has a share for each rank.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "collective/algorithms.hpp"
#include "support/link_collective_test.hpp"

namespace rondo::transport::link_shares_test {
namespace {

using shm::Collective;
using test::Buffers;
using test::Ints;
using test::link_value;
using test::LinkRanks;

constexpr std::size_t element = sizeof(std::int32_t);

// Rows whose columns are the ranks' shares, `gap` elements apart.
struct Layout {
  std::size_t rows = 1;
  std::size_t gap = 0;
  std::vector<std::size_t> shares;  // elements of a row of each rank

  [[nodiscard]] std::size_t row() const {
    return std::accumulate(shares.begin(), shares.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t stride() const { return row() + gap; }
  [[nodiscard]] std::size_t before(std::size_t rank) const {
    return std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::size_t{0});
  }
  [[nodiscard]] bool equal() const {
    return std::ranges::all_of(shares, [&](std::size_t share) { return share == shares[0]; });
  }
  [[nodiscard]] ConstBlock whole(const Ints& data) const {
    return {test::input_of(data).data, ElementType::i32, rows, row() * element, stride() * element};
  }
  [[nodiscard]] Block whole(Ints& data) const {
    return {test::output_of(data).data, ElementType::i32, rows, row() * element,
            stride() * element};
  }
  // A rank's own share, dense, in `data`.
  [[nodiscard]] ConstBlock share(const Ints& data, std::size_t rank) const {
    return {test::input_of(data).data, ElementType::i32, rows, shares[rank] * element,
            shares[rank] * element};
  }
  [[nodiscard]] Block share(Ints& data, std::size_t rank) const {
    return {test::output_of(data).data, ElementType::i32, rows, shares[rank] * element,
            shares[rank] * element};
  }
  // Its columns of the whole in `data`.
  [[nodiscard]] Block columns(Ints& data, std::size_t rank) const {
    std::byte* first = test::output_of(data).data;
    if (first != nullptr) first += before(rank) * element;  // null: no rows
    return {first, ElementType::i32, rows, shares[rank] * element, stride() * element};
  }
};

void set_shares(Posted& posted, const Layout& layout) {
  if (layout.equal()) {
    posted.row_bytes_each = layout.shares[0] * element;
    return;
  }
  for (const std::size_t share : layout.shares) posted.row_bytes_of.push_back(share * element);
}

class LinkSharesTest : public test::LinkCollectiveTest {
 protected:
  // Equal shares of a dense array; unequal ones; rows with gaps between them.
  [[nodiscard]] static std::vector<Layout> layouts() {
    const std::vector<std::size_t> equal(ranks(), elements() / 7);
    std::vector<std::size_t> unequal(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) unequal[r] = r % 3 == 1 ? 0 : elements() / (r + 1);
    std::vector<std::size_t> narrow(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) narrow[r] = 1 + r % 3;
    return {{.rows = 1, .gap = 0, .shares = equal},
            {.rows = 1, .gap = 0, .shares = unequal},
            {.rows = elements() / 64, .gap = 3, .shares = narrow},
            {.rows = 5, .gap = 2, .shares = equal}};
  }
};

using RingAllgatherTest = LinkSharesTest;

// The shares of all ranks, put together; gaps hold -1.
Ints gathered(const Layout& layout) {
  Ints all(layout.rows * layout.stride(), -1);
  for (std::size_t row = 0; row < layout.rows; ++row) {
    std::size_t at = row * layout.stride();
    for (std::size_t r = 0; r < layout.shares.size(); ++r) {
      for (std::size_t i = 0; i < layout.shares[r]; ++i, ++at) {
        all[at] = link_value(r, row * layout.shares[r] + i);
      }
    }
  }
  return all;
}

TEST_P(RingAllgatherTest, PutsAllSharesTogetherWithTheClosedFormsMessages) {
  for (const Layout& layout : layouts()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> in;
    Buffers<std::int32_t> out(ranks(), Ints(layout.rows * layout.stride(), -1));
    for (std::size_t r = 0; r < ranks(); ++r) {
      in.push_back(test::link_input(r, layout.rows * layout.shares[r]));
    }
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const Ints& given = in[r];
      posted.push_back(
          test::posted_of(Collective::allgather, layout.share(given, r), layout.whole(out[r])));
      set_shares(posted[r], layout);
    }

    links.run(algorithms::ring, posted, late());

    const Ints all = gathered(layout);
    for (const Ints& mine : out) EXPECT_EQ(mine, all);
    test::expect_link_traffic(links, test::LinkAlgorithm::ring, posted, segment_bytes());
  }
}

TEST_P(RingAllgatherTest, TakesTheOwnShareFromWhereItGoes) {
  for (const Layout& layout : layouts()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    const Ints all = gathered(layout);
    Buffers<std::int32_t> data(ranks(), Ints(all.size(), -1));
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t row = 0; row < layout.rows; ++row) {
        const std::size_t at = row * layout.stride() + layout.before(r);
        for (std::size_t i = at; i < at + layout.shares[r]; ++i) data[r][i] = all[i];
      }
      posted.push_back(test::posted_of(Collective::allgather,
                                       as_const_block(layout.columns(data[r], r)),
                                       layout.whole(data[r])));
      set_shares(posted[r], layout);
    }

    links.run(algorithms::ring, posted, late());

    for (const Ints& mine : data) EXPECT_EQ(mine, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, RingAllgatherTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

using RingReduceScatterTest = LinkSharesTest;

TEST_P(RingReduceScatterTest, GivesEachRankTheSumOfItsShareWithTheClosedFormsMessages) {
  for (const Layout& layout : layouts()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    const Buffers<std::int32_t> in = test::link_inputs(ranks(), layout.rows * layout.stride());
    Buffers<std::int32_t> out(ranks());
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks(); ++r) {
      out[r].assign(layout.rows * layout.shares[r], -1);
      posted.push_back(test::posted_of(Collective::reduce_scatter, layout.whole(in[r]),
                                       layout.share(out[r], r)));
      set_shares(posted[r], layout);
    }

    links.run(algorithms::ring, posted, late());

    const Ints sums = test::link_sums(ranks(), layout.rows * layout.stride());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::size_t before = layout.before(r);
      Ints expected;
      for (std::size_t row = 0; row < layout.rows; ++row) {
        const auto first =
            sums.begin() + static_cast<std::ptrdiff_t>(row * layout.stride() + before);
        expected.insert(expected.end(), first,
                        first + static_cast<std::ptrdiff_t>(layout.shares[r]));
      }
      ASSERT_EQ(out[r], expected);
    }
    EXPECT_EQ(in, test::link_inputs(ranks(), layout.rows * layout.stride()));
    test::expect_link_traffic(links, test::LinkAlgorithm::ring, posted, segment_bytes());
  }
}

TEST_P(RingReduceScatterTest, PutsTheSumWhereTheOwnShareWasAndLeavesTheRest) {
  for (const Layout& layout : layouts()) {
    LinkRanks links(ranks(), script(), segment_bytes());
    Buffers<std::int32_t> data = test::link_inputs(ranks(), layout.rows * layout.stride());
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const Ints& given = data[r];
      posted.push_back(test::posted_of(Collective::reduce_scatter, layout.whole(given),
                                       layout.columns(data[r], r)));
      set_shares(posted[r], layout);
    }

    links.run(algorithms::ring, posted, late());

    const Ints sums = test::link_sums(ranks(), layout.rows * layout.stride());
    for (std::size_t r = 0; r < ranks(); ++r) {
      Ints expected = test::link_input(r, sums.size());
      for (std::size_t row = 0; row < layout.rows; ++row) {
        const auto own = static_cast<std::ptrdiff_t>(row * layout.stride() + layout.before(r));
        std::copy_n(sums.begin() + own, layout.shares[r], expected.begin() + own);
      }
      ASSERT_EQ(data[r], expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, RingReduceScatterTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

using PairwiseAlltoallTest = LinkSharesTest;

std::vector<Posted> post_alltoall(const Buffers<std::int32_t>& in, Buffers<std::int32_t>& out) {
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < in.size(); ++r) {
    posted.push_back(
        test::posted_of(Collective::alltoall, test::input_of(in[r]), test::output_of(out[r])));
    posted[r].row_bytes_each = in[r].size() * element / in.size();
  }
  return posted;
}

void expect_swapped(const Buffers<std::int32_t>& out, std::size_t part) {
  for (std::size_t r = 0; r < out.size(); ++r) {
    for (std::size_t i = 0; i < out[r].size(); ++i) {
      ASSERT_EQ(out[r][i], link_value(i / part, r * part + i % part));
    }
  }
}

TEST_P(PairwiseAlltoallTest, SwapsPartsWithTheClosedFormsMessages) {
  LinkRanks links(ranks(), script(), segment_bytes());
  const std::size_t part = elements() / 3;
  const Buffers<std::int32_t> in = test::link_inputs(ranks(), part * ranks());
  Buffers<std::int32_t> out(ranks(), Ints(part * ranks(), -1));
  const std::vector<Posted> posted = post_alltoall(in, out);

  links.run(algorithms::pairwise_alltoall, posted, late());

  expect_swapped(out, part);
  EXPECT_EQ(in, test::link_inputs(ranks(), part * ranks()));
  test::expect_link_traffic(links, test::LinkAlgorithm::pairwise, posted, segment_bytes());
}

INSTANTIATE_TEST_SUITE_P(Memory, PairwiseAlltoallTest, testing::ValuesIn(test::link_cases()),
                         test::name_of_link_test);

}  // namespace
}  // namespace rondo::transport::link_shares_test
