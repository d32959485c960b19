// The collectives of groups with several ranks on some node: nodes of unequal numbers of ranks, in
// any order of ranks, in several blocks; what they send between nodes. How they fail is in
// hierarchical_faults_test.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/link_traffic.hpp"
#include "support/world.hpp"

namespace rondo::transport::hierarchical_test {
namespace {

using shm::Collective;
using test::Memory;

/// A communicator of some ranks of a World with so many ranks on each of its nodes.
struct Layout {
  const char* name;
  int nodes;
  int ranks_per_node;
  std::vector<int> members;  ///< World ranks, in the order of the communicator
};

[[nodiscard]] std::size_t count_of(const Layout& layout) { return layout.members.size(); }

/// The levels of the communicator, as its rank `rank` sees them.
void arrange(Hierarchy& levels, const Layout& layout, std::size_t rank) {
  std::vector<std::vector<std::size_t>> nodes;
  std::vector<int> seen;
  for (std::size_t m = 0; m < layout.members.size(); ++m) {
    const int node = layout.members[m] / layout.ranks_per_node;
    const auto found = std::ranges::find(seen, node);
    if (found == seen.end()) {
      seen.push_back(node);
      nodes.push_back({m});
    } else {
      nodes[static_cast<std::size_t>(found - seen.begin())].push_back(m);
    }
  }
  levels.arrange(std::move(nodes), rank);
}

std::int32_t value(std::size_t rank, std::size_t i) {
  return static_cast<std::int32_t>(rank * 1'000'003 + i);
}
std::int32_t sum(std::size_t ranks, std::size_t i) {
  return static_cast<std::int32_t>(ranks * (ranks - 1) / 2 * 1'000'003 + ranks * i);
}

/// Uneven shares, some of them empty: rank r gets ((r + 1) mod 3) * unit.
std::vector<std::size_t> uneven(std::size_t ranks, std::size_t unit) {
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r < ranks; ++r) counts.push_back((r + 1) % 3 * unit);
  return counts;
}
std::size_t before(const std::vector<std::size_t>& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::size_t{0});
}

// Parameters: memory, layout.
class HierarchicalTest : public testing::TestWithParam<std::tuple<Memory, Layout>> {
 protected:
  using Ints = std::pmr::vector<std::int32_t>;

  [[nodiscard]] static const Layout& layout() { return std::get<1>(GetParam()); }
  [[nodiscard]] static std::size_t ranks() { return count_of(layout()); }
  [[nodiscard]] static test::World world() {
    WorldOptions options = test::quick_options();
    options.fabric.name = "shm";
    options.fabric.fake_nodes = layout().nodes;
    return test::World(layout().nodes * layout().ranks_per_node, options);
  }
  /// The objects that a rank of the communicator works with.
  struct Rank {
    World& world;
    Communicator& comm;
    std::size_t rank;

    [[nodiscard]] Ints ints(std::size_t count, std::int32_t filled = -1) const {
      return Ints(count, filled, test::resource(world, std::get<0>(GetParam())));
    }
    [[nodiscard]] Ints values(std::size_t count) const {
      Ints data = ints(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i);
      return data;
    }
  };
  class AllAtOnce;

  template <typename Body>
  static void run(Body body) {
    world().run([&](World& world) { run_member(world, body); });
  }
  template <typename Body>
  static void run_member(World& world, Body& body) {
    const auto& members = layout().members;
    const auto found = std::ranges::find(members, world.rank());
    const int key = static_cast<int>(found - members.begin());
    Communicator comm = world.communicator().split(found == members.end() ? 1 : 0, key);
    if (found == members.end()) return;
    Rank rank{world, comm, static_cast<std::size_t>(key)};
    body(rank);
  }
  /// Posts `collective` of an equal part of `in` and `out` for each rank; its root is rank 1.
  static Request post(Rank& at, Collective collective, const Ints& in, Ints& out) {
    const std::size_t count = in.size() / ranks();
    const auto one = std::span(in).first(count);
    const auto result = std::span(out).first(count);
    switch (collective) {
      case Collective::allreduce:
        return at.comm.allreduce<std::int32_t>(one, result);
      case Collective::reduce:
        return at.comm.reduce<std::int32_t>(one, at.rank == 1 ? result : std::span<std::int32_t>(),
                                            1);
      case Collective::broadcast:
        return at.comm.broadcast(result, 1);
      case Collective::allgather:
        return at.comm.allgather<std::int32_t>(one, std::span(out));
      case Collective::reduce_scatter:
        return at.comm.reduce_scatter<std::int32_t>(in, result);
      case Collective::alltoall:
        return at.comm.alltoall<std::int32_t>(in, std::span(out));
      default:
        return at.comm.barrier();
    }
  }
  /// Counts for short data, for data in several shards, and for several blocks.
  [[nodiscard]] static std::vector<std::size_t> counts() { return {0, 1, 7, 5'003, 600'003}; }
};

// Counts what differs: one message for millions of elements.
template <typename Expected>
testing::AssertionResult holds(std::span<const std::int32_t> data, Expected expected) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] == expected(i)) continue;
    return testing::AssertionFailure() << "element " << i << " of " << data.size() << " is "
                                       << data[i] << ", not " << expected(i);
  }
  return testing::AssertionSuccess();
}

TEST_P(HierarchicalTest, AllreduceSumsBlockByBlock) {
  run([](Rank& at) {
    for (const std::size_t count : counts()) {
      Ints data = at.values(count);
      Ints out = at.ints(count);

      at.comm.allreduce<std::int32_t>(data, std::span(out)).wait();
      const std::uint64_t operations = at.world.counters().operations;
      at.comm.allreduce(std::span(data)).wait();

      EXPECT_TRUE(holds(out, [](std::size_t i) { return sum(ranks(), i); }));
      EXPECT_TRUE(holds(data, [](std::size_t i) { return sum(ranks(), i); }));
      EXPECT_EQ(at.world.counters().operations - operations, 1U);
    }
  });
}

TEST_P(HierarchicalTest, BroadcastAndReduceWithAllRoots) {
  run([](Rank& at) {
    for (const std::size_t count : counts()) {
      for (std::size_t root = 0; root < ranks(); ++root) {
        if (count > 10'000 && root != ranks() / 2) continue;
        Ints data = at.values(count);
        Ints total = at.ints(at.rank == root ? count : 0);
        const std::uint64_t operations = at.world.counters().operations;

        at.comm.reduce<std::int32_t>(data, std::span(total), static_cast<int>(root)).wait();
        at.comm.broadcast(std::span(data), static_cast<int>(root)).wait();

        EXPECT_TRUE(holds(data, [&](std::size_t i) { return value(root, i); })) << root;
        EXPECT_TRUE(holds(total, [](std::size_t i) { return sum(ranks(), i); })) << root;
        EXPECT_EQ(at.world.counters().operations - operations, 2U);
      }
    }
  });
}

TEST_P(HierarchicalTest, ReduceInPlaceAtTheRoot) {
  run([](Rank& at) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{600'001}}) {
      const std::size_t root = ranks() - 1;
      Ints data = at.values(count);
      const std::span<std::int32_t> result =
          at.rank == root ? std::span(data) : std::span<std::int32_t>();

      at.comm.reduce<std::int32_t>(data, result, static_cast<int>(root)).wait();

      EXPECT_TRUE(holds(data, [&](std::size_t i) {
        return at.rank == root ? sum(ranks(), i) : value(at.rank, i);
      }));
    }
  });
}

TEST_P(HierarchicalTest, AllgatherPutsEqualSharesInRankOrder) {
  run([](Rank& at) {
    for (const std::size_t count : {0U, 1U, 7U, 5'003U, 100'001U}) {
      const Ints given = at.values(count);
      Ints all = at.ints(count * ranks());
      Ints in_place = at.ints(count * ranks());
      std::ranges::copy(given, in_place.begin() + static_cast<std::ptrdiff_t>(at.rank * count));

      at.comm.allgather<std::int32_t>(given, std::span(all)).wait();
      at.comm
          .allgather<std::int32_t>(std::span(in_place).subspan(at.rank * count, count),
                                   std::span(in_place))
          .wait();

      const auto expected = [&](std::size_t i) { return value(i / count, i % count); };
      EXPECT_TRUE(holds(all, expected));
      EXPECT_TRUE(holds(in_place, expected));
    }
  });
}

TEST_P(HierarchicalTest, AllgatherPutsListedSharesInRankOrder) {
  run([](Rank& at) {
    for (const std::size_t unit : {1U, 1'003U, 100'001U}) {
      const std::vector<std::size_t> shares = uneven(ranks(), unit);
      const Ints given = at.values(shares[at.rank]);
      Ints all = at.ints(before(shares, ranks()));

      at.comm.allgather<std::int32_t>(given, std::span(all), shares).wait();

      for (std::size_t r = 0; r < ranks(); ++r) {
        EXPECT_TRUE(holds(std::span(all).subspan(before(shares, r), shares[r]),
                          [&](std::size_t i) { return value(r, i); }))
            << "of rank " << r;
      }
    }
  });
}

TEST_P(HierarchicalTest, ReduceScatterGivesEachRankAnEqualShare) {
  run([](Rank& at) {
    for (const std::size_t count : {0U, 1U, 7U, 5'003U, 100'001U}) {
      Ints data = at.values(count * ranks());
      Ints own = at.ints(count);
      const std::size_t first = at.rank * count;

      at.comm.reduce_scatter<std::int32_t>(data, std::span(own)).wait();
      at.comm.reduce_scatter<std::int32_t>(data, std::span(data).subspan(first, count)).wait();

      const auto expected = [&](std::size_t i) { return sum(ranks(), first + i); };
      EXPECT_TRUE(holds(own, expected));
      EXPECT_TRUE(holds(std::span(data).subspan(first, count), expected));
    }
  });
}

TEST_P(HierarchicalTest, ReduceScatterGivesEachRankItsListedShare) {
  run([](Rank& at) {
    for (const std::size_t unit : {1U, 1'003U, 100'001U}) {
      const std::vector<std::size_t> shares = uneven(ranks(), unit);
      const Ints data = at.values(before(shares, ranks()));
      Ints own = at.ints(shares[at.rank]);

      at.comm.reduce_scatter<std::int32_t>(data, std::span(own), ReduceOp::sum, shares).wait();

      EXPECT_TRUE(
          holds(own, [&](std::size_t i) { return sum(ranks(), before(shares, at.rank) + i); }));
    }
  });
}

// Columns of an image: rows with gaps, of few and of many bytes.
TEST_P(HierarchicalTest, AllgatherAndReduceScatterOfRowsLeaveTheGapsAlone) {
  run([](Rank& at) {
    for (const std::size_t rows : {3U, 20'001U}) {
      const std::vector<std::size_t> shares = uneven(ranks(), 2);
      const std::size_t own = shares[at.rank];
      const std::size_t all = before(shares, ranks());
      const Ints narrow = at.values(rows * own);
      Ints wide = at.ints(rows * (all + 1));
      Ints back = at.ints(rows * (own + 2));

      at.comm
          .allgather(Strided<const std::int32_t>(narrow.data(), rows, own, own),
                     Strided<std::int32_t>(wide.data(), rows, all, all + 1), shares)
          .wait();
      at.comm
          .reduce_scatter(Strided<const std::int32_t>(wide.data(), rows, all, all + 1),
                          Strided<std::int32_t>(back.data(), rows, own, own + 2), ReduceOp::sum,
                          shares)
          .wait();

      std::size_t wrong = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t r = 0; r < ranks(); ++r) {
          for (std::size_t c = 0; c < shares[r]; ++c) {
            const std::int32_t expected = value(r, row * shares[r] + c);
            wrong += wide[row * (all + 1) + before(shares, r) + c] == expected ? 0U : 1U;
            if (r != at.rank) continue;
            const auto total = static_cast<std::int32_t>(ranks()) * expected;
            wrong += back[row * (own + 2) + c] == total ? 0U : 1U;
          }
        }
        wrong += wide[row * (all + 1) + all] == -1 ? 0U : 1U;
        wrong += back[row * (own + 2) + own] == -1 ? 0U : 1U;
      }
      EXPECT_EQ(wrong, 0U) << rows;
    }
  });
}

TEST_P(HierarchicalTest, AlltoallSendsShortAndLongPartsToTheirRanks) {
  run([](Rank& at) {
    for (const std::size_t count : {0U, 1U, 9U, 1'001U}) {
      const Ints given = at.values(count * ranks());
      Ints taken = at.ints(count * ranks());

      at.comm.alltoall<std::int32_t>(given, std::span(taken)).wait();

      EXPECT_TRUE(holds(
          taken, [&](std::size_t i) { return value(i / count, at.rank * count + i % count); }));
    }
  });
}

// All collectives of `count` elements of each rank at once; the last rank is the root.
class HierarchicalTest::AllAtOnce {
 public:
  AllAtOnce(const Rank& at, std::size_t count)
      : at_(at),
        count_(count),
        is_root_(at.rank == ranks() - 1),
        given_(at.values(count * ranks())),
        sent_(at.values(count)),
        reduced_(at.values(count)),
        collected_(at.ints(is_root_ ? count * ranks() : 0)),
        total_(at.ints(is_root_ ? count : 0)),
        gathered_(at.ints(count * ranks())),
        exchanged_(at.ints(count * ranks())),
        scattered_(at.ints(count)) {}

  std::vector<Request> post() {
    const auto share = std::span(given_).first(count_);
    const int root = static_cast<int>(ranks()) - 1;
    std::vector<Request> requests;
    requests.push_back(at_.comm.broadcast(std::span(sent_), root));
    requests.push_back(at_.comm.allreduce(std::span(reduced_)));
    requests.push_back(at_.comm.barrier());
    requests.push_back(at_.comm.gather<std::int32_t>(share, std::span(collected_), root));
    requests.push_back(at_.comm.reduce<std::int32_t>(share, std::span(total_), root));
    requests.push_back(at_.comm.allgather<std::int32_t>(share, std::span(gathered_)));
    requests.push_back(at_.comm.alltoall<std::int32_t>(given_, std::span(exchanged_)));
    requests.push_back(at_.comm.reduce_scatter<std::int32_t>(given_, std::span(scattered_)));
    requests.push_back(at_.comm.barrier());
    return requests;
  }

  void expect_results() const {
    const std::size_t mine = at_.rank * count_;
    const auto sum_of = [](std::size_t i) { return sum(ranks(), i); };
    const auto of_all = [&](std::size_t i) { return value(i / count_, i % count_); };
    EXPECT_TRUE(holds(sent_, [](std::size_t i) { return value(ranks() - 1, i); }));
    EXPECT_TRUE(holds(reduced_, sum_of));
    EXPECT_TRUE(holds(total_, sum_of));
    EXPECT_TRUE(holds(collected_, of_all));
    EXPECT_TRUE(holds(gathered_, of_all));
    EXPECT_TRUE(
        holds(exchanged_, [&](std::size_t i) { return value(i / count_, mine + i % count_); }));
    EXPECT_TRUE(holds(scattered_, [&](std::size_t i) { return sum(ranks(), mine + i); }));
  }

 private:
  Rank at_;
  std::size_t count_;
  bool is_root_;
  const Ints given_;
  Ints sent_;
  Ints reduced_;
  Ints collected_;
  Ints total_;
  Ints gathered_;
  Ints exchanged_;
  Ints scattered_;
};

// The work of one operation on the nodes meets that of others there.
TEST_P(HierarchicalTest, AllOfThemMayBeOutstandingTogether) {
  run([](Rank& at) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{10'003}}) {
      AllAtOnce all(at, count);
      std::vector<Request> requests = all.post();

      if (at.rank % 2 == 0) std::ranges::reverse(requests);
      wait_all(requests);

      all.expect_results();
    }
  });
}

// Joined in one order everywhere, whoever comes first.
TEST_P(HierarchicalTest, SumsOfFloatsHaveTheSameBitsEverywhereAndAgain) {
  run([](Rank& at) {
    constexpr std::size_t count = 100'007;
    std::vector<float> given(count);
    for (std::size_t i = 0; i < count; ++i) {
      given[i] = 0.1F * static_cast<float>(at.rank + 1) + 1e-3F * static_cast<float>(i);
    }
    std::vector<float> first(count);
    std::vector<float> second(count);
    std::vector<float> all(count * ranks());

    at.comm.allreduce<float>(given, std::span(first)).wait();
    at.comm.allreduce<float>(given, std::span(second)).wait();
    at.comm.allgather<float>(first, std::span(all)).wait();

    EXPECT_EQ(first, second);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) wrong += all[i] == first[i % count] ? 0U : 1U;
    EXPECT_EQ(wrong, 0U);
  });
}

// The operation that each collective posts, for the closed form.
Posted posted_of(Collective collective, std::size_t ranks, std::size_t count) {
  const std::size_t bytes = count * sizeof(std::int32_t);
  const bool reduces_shares = collective == Collective::reduce_scatter;
  const bool exchanges = collective == Collective::alltoall;
  const std::size_t in = reduces_shares || exchanges ? ranks * bytes : bytes;
  const std::size_t out = collective == Collective::allgather || exchanges ? ranks * bytes : bytes;
  Posted posted;
  posted.fingerprint = {.collective = collective, .type = ElementType::i32, .root = 1};
  posted.input = {nullptr, ElementType::i32, 1, in, in};
  posted.output = {nullptr, ElementType::i32, 1, out, out};
  posted.row_bytes_each = bytes;
  return posted;
}

constexpr Collective hierarchical_collectives[] = {
    Collective::allreduce,      Collective::reduce,  Collective::broadcast, Collective::allgather,
    Collective::reduce_scatter, Collective::barrier, Collective::alltoall};

TEST_P(HierarchicalTest, SendsBetweenNodesWhatTheClosedFormSays) {
  run([](Rank& at) {
    Hierarchy levels;
    arrange(levels, layout(), at.rank);
    for (const std::size_t count : {3U, 10'003U, 100'001U}) {
      const Ints in = at.values(count * ranks());
      Ints out = at.ints(count * ranks());
      for (const Collective collective : hierarchical_collectives) {
        if (collective == Collective::alltoall && count > 3) continue;  // flat
        const Counters begin = at.world.counters();
        post(at, collective, in, out).wait();

        const Counters end = at.world.counters();
        EXPECT_EQ((test::LinkTraffic{end.fabric_messages - begin.fabric_messages,
                                     end.fabric_bytes - begin.fabric_bytes}),
                  test::hierarchical_traffic_of(posted_of(collective, ranks(), count), levels,
                                                AlgorithmTable::for_ranks(levels.nodes.size()),
                                                Group().segment_bytes))
            << "collective " << static_cast<int>(collective) << " of " << count << ", rank "
            << at.rank;
      }
    }
  });
}

// The closed forms of all ranks together are what has to cross.
TEST_P(HierarchicalTest, CrossesTheNetworkOncePerNode) {
  for (const std::size_t count : {3U, 10'003U, 100'001U}) {
    const std::size_t bytes = count * sizeof(std::int32_t);
    for (const Collective collective : hierarchical_collectives) {
      std::uint64_t sent = 0;
      std::size_t others = 0;  // nodes
      std::size_t crossing = 0;
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        Hierarchy levels;
        arrange(levels, layout(), rank);
        others = levels.nodes.size() - 1;
        crossing += ranks() - levels.members_here().size();
        sent += test::hierarchical_traffic_of(posted_of(collective, ranks(), count), levels,
                                              AlgorithmTable::parse("ring:0-max"),
                                              Group().segment_bytes)
                    .bytes;
      }
      switch (collective) {
        case Collective::allreduce:
          EXPECT_EQ(sent, 2 * others * bytes);
          break;
        case Collective::allgather:
        case Collective::reduce_scatter:
          EXPECT_EQ(sent, others * ranks() * bytes);
          break;
        case Collective::alltoall:
          EXPECT_EQ(sent, crossing * bytes);
          break;
        case Collective::barrier:
          EXPECT_EQ(sent, 0U);
          break;
        default:
          EXPECT_EQ(sent, others * bytes);
      }
    }
  }
}

std::vector<Layout> layouts() {
  return {
      {"TwoAndTwo", 2, 2, {0, 1, 2, 3}},
      {"TwoAndTwoInterleaved", 2, 2, {0, 2, 1, 3}},
      {"OneAndThree", 2, 3, {0, 3, 4, 5}},
      {"ThreeTwoOne", 3, 3, {0, 1, 2, 3, 4, 6}},
      {"ThreeTwoOneInterleaved", 3, 3, {6, 3, 0, 1, 4, 2}},
      {"ThreeTimesTwo", 3, 2, {0, 1, 2, 3, 4, 5}},
  };
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Memory, Layout>>& info) {
  return std::string(std::get<1>(info.param).name) + test::name_of(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(ShmNodes, HierarchicalTest,
                         testing::Combine(testing::Values(Memory::arena, Memory::ordinary),
                                          testing::ValuesIn(layouts())),
                         name_of_case);

}  // namespace
}  // namespace rondo::transport::hierarchical_test
