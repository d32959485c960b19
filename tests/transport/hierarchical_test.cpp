// The collectives of groups with several ranks on some node: nodes of unequal numbers of ranks, in
// any order of ranks, in several blocks; what they send between nodes. How they fail is in
// hierarchical_faults_test.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/call_buffers.hpp"
#include "support/link_data.hpp"
#include "support/link_traffic.hpp"
#include "support/world.hpp"

namespace rondo::transport::hierarchical_test {
namespace {

using shm::Collective;
using test::CallKind;
using test::Memory;
using Buffers = test::CallBuffers<>;

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

// Parameters: memory, layout.
class HierarchicalTest : public testing::TestWithParam<std::tuple<Memory, Layout>> {
 protected:
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

    [[nodiscard]] Buffers buffers(const test::Call& call, std::size_t count,
                                  std::size_t root) const {
      return {comm, test::resource(world, std::get<0>(GetParam())), call, count,
              static_cast<int>(root)};
    }
  };

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
  /// Is the call one that nodes and their owners share out? Others go between all ranks.
  [[nodiscard]] static bool is_hierarchical(const test::Call& call) {
    return (call.kind < CallKind::alltoall || call.kind == CallKind::barrier) &&
           call.output <= test::Output::in_place;
  }
  /// For short data, for data in several shards, and for several blocks.
  [[nodiscard]] static std::vector<std::size_t> counts(const test::Call& call) {
    using test::Shares;
    const bool is_variant = call.op != ReduceOp::sum || call.shares > Shares::rows ||
                            call.shares == Shares::one_rank ||
                            (call.shares != Shares::equal && call.output != test::Output::apart);
    if (is_variant || call.kind == CallKind::allreduce_coalesced) return {5'003};
    if (call.kind == CallKind::barrier) return {0};
    if (call.shares == Shares::rows) return {12, 80'003};
    if (call.has_shares()) return {0, 1, 7, 5'003, 100'001};
    return {0, 1, 7, 5'003, 600'003};
  }
  /// Short data meets every root.
  [[nodiscard]] static std::vector<std::size_t> roots(const test::Call& call, std::size_t count) {
    if (!call.has_root() || count > 10'000) return {ranks() / 2};
    std::vector<std::size_t> roots(ranks());
    std::iota(roots.begin(), roots.end(), std::size_t{0});
    return roots;
  }
};

TEST_P(HierarchicalTest, EveryCallGivesTheResultAndLeavesAllElseAlone) {
  run([](Rank& at) {
    for (const test::Call& call : test::all_calls()) {
      if (!is_hierarchical(call)) continue;
      for (const std::size_t count : counts(call)) {
        for (const std::size_t root : roots(call, count)) {
          Buffers data = at.buffers(call, count, root);
          data.fill();
          const std::uint64_t operations = at.world.counters().operations;

          data.post(at.comm).wait();

          EXPECT_EQ(data.fault(), "");
          EXPECT_EQ(at.world.counters().operations - operations, 1U) << call.name;
        }
      }
    }
  });
}

// The work of one operation on the nodes meets that of others there.
TEST_P(HierarchicalTest, AllCallsMayBeOutstandingTogether) {
  run([](Rank& at) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{10'003}}) {
      std::deque<Buffers> buffers;
      std::vector<Request> requests;
      for (const test::Call& call : test::all_calls()) {
        buffers.emplace_back(at.comm, test::resource(at.world, std::get<0>(GetParam())), call,
                             count, at.comm.size() - 1);
        buffers.back().fill(count);
        requests.push_back(buffers.back().post(at.comm));
      }

      if (at.rank % 2 == 0) std::ranges::reverse(requests);
      wait_all(requests);

      for (Buffers& data : buffers) EXPECT_EQ(data.fault(), "");
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
  const std::size_t in = reduces_shares ? ranks * bytes : bytes;
  const std::size_t out = collective == Collective::allgather ? ranks * bytes : bytes;
  Posted posted;
  posted.fingerprint = {.collective = collective, .type = ElementType::i32, .root = 1};
  posted.input = {nullptr, ElementType::i32, 1, in, in};
  posted.output = {nullptr, ElementType::i32, 1, out, out};
  posted.row_bytes_each = bytes;
  return posted;
}

constexpr Collective hierarchical_collectives[] = {
    Collective::allreduce, Collective::reduce,         Collective::broadcast,
    Collective::allgather, Collective::reduce_scatter, Collective::barrier};

TEST_P(HierarchicalTest, SendsBetweenNodesWhatTheClosedFormSays) {
  run([](Rank& at) {
    Hierarchy levels;
    arrange(levels, layout(), at.rank);
    for (const std::size_t count : {3U, 10'003U, 100'001U}) {
      for (const char* name :
           {"Allreduce", "Reduce", "Broadcast", "Allgather", "ReduceScatter", "Barrier"}) {
        const test::Call& call = test::call_named(name);
        Buffers data = at.buffers(call, count, 1);
        data.fill();
        const Counters begin = at.world.counters();
        data.post(at.comm).wait();

        const Counters end = at.world.counters();
        EXPECT_EQ((test::LinkTraffic{end.fabric_messages - begin.fabric_messages,
                                     end.fabric_bytes - begin.fabric_bytes}),
                  test::hierarchical_traffic_of(test::posted_of(data, ranks()), levels,
                                                AlgorithmTable::for_ranks(levels.nodes.size()),
                                                Group().segment_bytes))
            << name << " of " << count << ", rank " << at.rank;
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
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        Hierarchy levels;
        arrange(levels, layout(), rank);
        others = levels.nodes.size() - 1;
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
