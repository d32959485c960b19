// The promises of every collective, whatever carries it: one suite, instantiated for every backend.
// A backend that is not built is missing from the list of tests.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/check_calls.hpp"
#include "support/world.hpp"

namespace rondo::test {
namespace {

using transport::Communicator;
using transport::Neighbour;
using transport::ReduceOp;
using transport::Request;
using transport::Strided;

/// Parameters: backend, memory, ranks. Every case goes through the awkward counts.
class ConformanceTest : public testing::TestWithParam<std::tuple<Backend, Memory, int>> {
 protected:
  using Ints = std::pmr::vector<std::int32_t>;

  [[nodiscard]] Backend backend() const { return std::get<0>(GetParam()); }
  [[nodiscard]] Memory memory() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::size_t ranks() const {
    return static_cast<std::size_t>(std::get<2>(GetParam()));
  }
  /// All cases of a backend and a number of ranks use the same one.
  [[nodiscard]] OpenWorld& world() const {
    return worlds()
        .try_emplace({backend(), std::get<2>(GetParam())}, backend(), std::get<2>(GetParam()))
        .first->second;
  }
  static void TearDownTestSuite() { worlds().clear(); }

  /// They straddle the number of ranks; 10,007 take several segments on many ranks. Inside a node
  /// they straddle the protocols, too: 1,024 elements are the largest small operation, and of two
  /// ranks in arenas a direct one; 200,001 take several staging rounds. Parts of 70,001 are longer
  /// than what any link copies at once.
  [[nodiscard]] std::vector<std::size_t> counts(const Call& call) const {
    const bool inside = backend() == Backend::shm;
    const bool has_parts =
        call.kind >= CallKind::alltoallv || call.kind == CallKind::allreduce_coalesced;
    const bool is_plain = call.shares == Shares::equal && call.output <= Output::in_place;
    std::vector<std::size_t> counts{0, 1, 10'007};
    if (inside || (is_plain && !has_parts)) {
      counts.insert(counts.end(), {ranks() - 1, ranks(), ranks() + 1});
    }
    if (inside) counts.insert(counts.end(), {1024, 1025});
    if (inside && (ranks() == 2 || ranks() == 3)) counts.push_back(200'001);
    if (has_parts && (ranks() <= 3 || ranks() == 5)) counts.push_back(70'001);
    return counts;
  }
  /// Ranks that are roots in turn.
  [[nodiscard]] int root_of(std::size_t turn) const {
    const int last = static_cast<int>(ranks()) - 1;
    return turn % 3 == 0 ? last : turn % 3 == 1 ? last / 2 : 0;
  }
  /// Many ranks take long: most numbers of them make the calls that have algorithms of their own.
  [[nodiscard]] bool makes(const Call& call) const {
    const bool is_variant = (call.kind >= CallKind::alltoallv && call.kind != CallKind::barrier) ||
                            call.output >= Output::mixed;
    return ranks() <= 3 || ranks() == 5 || ranks() == 8 || !is_variant;
  }

  [[nodiscard]] Ints ints(transport::World& world, std::size_t count,
                          std::int32_t value = -1) const {
    return Ints(count, value, resource(world, memory()));
  }

  /// `count` numbers that tell their rank and place.
  [[nodiscard]] Ints numbers(transport::World& world, std::size_t count) const {
    Ints data = ints(world, count);
    for (std::size_t i = 0; i < count; ++i) data[i] = number(rank_of(world), i);
    return data;
  }
  [[nodiscard]] static std::int32_t number(std::size_t rank, std::size_t i) {
    return static_cast<std::int32_t>(rank * 100'003 + i);
  }
  [[nodiscard]] static std::size_t rank_of(const transport::World& world) {
    return static_cast<std::size_t>(world.rank());
  }

 private:
  static std::map<std::pair<Backend, int>, OpenWorld>& worlds() {
    static std::map<std::pair<Backend, int>, OpenWorld> open;
    return open;
  }
};

std::string name_of_conformance_test(
    const testing::TestParamInfo<ConformanceTest::ParamType>& info) {
  return std::string(name_of(std::get<1>(info.param))) + std::to_string(std::get<2>(info.param)) +
         "ranks";
}

const std::vector<int> all_ranks{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};
const std::vector<Memory> all_memories{Memory::arena, Memory::ordinary, Memory::mixed};

TEST_P(ConformanceTest, EveryCallGivesTheResultAndLeavesAllElseAlone) {
  world().run([&](transport::World& world) {
    std::size_t turn = 0;
    for (const Call& call : all_calls()) {
      if (!makes(call)) continue;
      turn += 1;  // long arrays meet another root than those of the call before
      for (const std::size_t count : counts(call)) {
        check_call(world, memory(), call, count, root_of(turn++));
      }
    }
  });
}

TEST_P(ConformanceTest, AllreduceOfFloatsGivesAllRanksTheSameBits) {
  world().run([&](transport::World& world) {
    for (const std::size_t count : {5U, 1024U, 10'007U, 200'001U}) {
      if (count > 100'000 && (backend() != Backend::shm || ranks() > 3)) continue;
      std::pmr::vector<float> data(count, resource(world, memory()));
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = 0.1F * static_cast<float>(rank_of(world) + 1) + 1e-3F * static_cast<float>(i);
      }
      std::vector<float> all(count * ranks());

      world.communicator().allreduce(std::span(data)).wait();
      world.communicator().allgather<float>(data, std::span(all)).wait();

      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], data[i % count]) << i;
    }
  });
}

TEST_P(ConformanceTest, BarrierHoldsEverybodyUntilTheLastHasCome) {
  std::atomic<std::size_t> arrived{0};
  world().run([&](transport::World& world) {
    for (std::size_t round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);

      world.communicator().barrier().wait();

      ASSERT_GE(arrived.load(), round * ranks());
    }
  });
}

// Half of the ranks wait for the last first.
TEST_P(ConformanceTest, AllCallsMayBeOutstandingTogether) {
  world().run([&](transport::World& world) {
    std::deque<CallBuffers<>> buffers;
    std::vector<Request> requests;
    for (const Call& call : all_calls()) {
      const std::size_t count = buffers.size() % 2 == 0 ? 3 : 997;
      buffers.emplace_back(world.communicator(), resource(world, memory()), call, count,
                           root_of(buffers.size()));
      buffers.back().fill(count);
      requests.push_back(buffers.back().post(world.communicator()));
    }

    if (world.rank() % 2 == 0) std::ranges::reverse(requests);
    wait_all(requests);

    for (CallBuffers<>& data : buffers) EXPECT_EQ(data.fault(), "");
  });
}

// Rows and columns of a grid of ranks reduce at the same time, waited for in opposite orders.
TEST_P(ConformanceTest, CommunicatorsDoNotDisturbEachOther) {
  world().run([&](transport::World& world) {
    Communicator odd_even = world.communicator().split(world.rank() % 2);
    Communicator halves =
        world.communicator().split(2 * rank_of(world) < ranks() ? 0 : 1, -world.rank());
    Ints first = ints(world, 5003, 1);
    Ints second = ints(world, 3001, 1);
    Ints third = ints(world, 7, 1);

    Request one = odd_even.allreduce(std::span(first));
    Request two = halves.allreduce(std::span(second));
    Request three = world.communicator().allreduce(std::span(third));
    if (world.rank() % 3 == 0) {
      three.wait();
      two.wait();
    }
    one.wait();
    two.wait();
    three.wait();

    EXPECT_TRUE(all_are(first, odd_even.size()));
    EXPECT_TRUE(all_are(second, halves.size()));
    EXPECT_TRUE(all_are(third, world.size()));
  });
}

// An image whose columns go to either side, which fill the columns beside them. With two ranks both
// sides are the same rank, and tags tell them apart.
TEST_P(ConformanceTest, HalosTravelBothWaysAtOnce) {
  world().run([&](transport::World& world) {
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    Ints image = numbers(world, 12'000);
    const auto given = [&](std::size_t column) {
      return Strided<const std::int32_t>(image.data() + column, 1000, 3, 12);
    };
    const auto taken = [&](std::size_t column) {
      return Strided<std::int32_t>(image.data() + column, 1000, 3, 12);
    };
    const std::vector<Neighbour> neighbours = {Neighbour(left, given(3), taken(0), 0, 1),
                                               Neighbour(right, given(6), taken(9), 1, 0)};

    world.communicator().sendrecv(neighbours).wait();

    for (std::size_t i = 0; i < image.size(); ++i) {
      const std::size_t column = i % 12;
      const int giver = column < 3 ? left : column < 9 ? world.rank() : right;
      const std::size_t place = column < 3 ? i + 6 : column < 9 ? i : i - 6;
      ASSERT_EQ(image[i], number(static_cast<std::size_t>(giver), place)) << i;
    }
  });
}

// On the wires, where what reduces is the same code, most numbers of ranks see one operation of one
// type, and an average of each type, because it is made in two steps between nodes.
TEST_P(ConformanceTest, EveryTypeAndReduction) {
  world().run([&](transport::World& world) {
    const bool all =
        backend() == Backend::shm ||
        (ranks() == 3 && (backend() == Backend::shm_nodes || backend() == Backend::hierarchy));
    const auto chosen = [all](CallKind kind, transport::ElementType type, ReduceOp op) {
      const bool meets = static_cast<int>(type) % 8 == static_cast<int>(op);
      return all || (kind == CallKind::allreduce && (op == ReduceOp::avg || meets));
    };
    if (all) check_reductions(world, memory(), 5, chosen);
    check_reductions(world, memory(), ranks() == 3 ? 10'007 : 1025, chosen);
  });
}

auto cases(Backend backend, const std::vector<Memory>& memories, const std::vector<int>& ranks) {
  return testing::Combine(testing::Values(backend), testing::ValuesIn(memories),
                          testing::ValuesIn(ranks));
}

// Without a fabric's library: one node, one rank per node, and several ranks per node, whose nodes
// are joined by the link over shared memory or by sockets.
INSTANTIATE_TEST_SUITE_P(Shm, ConformanceTest, cases(Backend::shm, all_memories, all_ranks),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(ShmNodes, ConformanceTest,
                         cases(Backend::shm_nodes, all_memories, all_ranks),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(Hierarchy, ConformanceTest,
                         cases(Backend::hierarchy, all_memories, all_ranks),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(Tcp, ConformanceTest, cases(Backend::tcp, all_memories, all_ranks),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(HierarchyTcp, ConformanceTest,
                         cases(Backend::hierarchy_tcp, {Memory::arena}, all_ranks),
                         name_of_conformance_test);

#ifdef RONDO_TEST_OFI
// Opening a link takes libfabric 30 ms and more, so that only some ranks meet every memory.
INSTANTIATE_TEST_SUITE_P(OfiTcp, ConformanceTest,
                         cases(Backend::ofi_tcp, {Memory::arena}, all_ranks),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(OfiTcpMemories, ConformanceTest,
                         cases(Backend::ofi_tcp, {Memory::ordinary, Memory::mixed}, {2, 3, 5}),
                         name_of_conformance_test);
#endif

#ifdef RONDO_TEST_UCX
// Many ranks connect slowly over TCP, so that only some of them meet every memory.
INSTANTIATE_TEST_SUITE_P(UcxTcp, ConformanceTest,
                         cases(Backend::ucx_tcp, {Memory::arena}, all_ranks),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(UcxTcpMemories, ConformanceTest,
                         cases(Backend::ucx_tcp, {Memory::ordinary, Memory::mixed}, {2, 3, 5, 8}),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(HierarchyUcx, ConformanceTest,
                         cases(Backend::hierarchy_ucx, all_memories, {3, 5, 8}),
                         name_of_conformance_test);
INSTANTIATE_TEST_SUITE_P(UcxShm, ConformanceTest, cases(Backend::ucx_shm, all_memories, all_ranks),
                         name_of_conformance_test);
#endif

}  // namespace
}  // namespace rondo::test
