// The promises of every collective, whatever carries it: one suite, instantiated for every backend.
// A backend that is not built is missing from the list of tests.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

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

  /// They straddle the number of ranks; the last takes several segments on many ranks.
  [[nodiscard]] std::vector<std::size_t> counts() const {
    return {0, 1, ranks() - 1, ranks(), ranks() + 1, 10'007};
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
  /// The sum of all ranks' number(rank, i).
  [[nodiscard]] std::int32_t sum(std::size_t i) const {
    return static_cast<std::int32_t>(ranks() * (ranks() - 1) / 2 * 100'003 + ranks() * i);
  }
  [[nodiscard]] static std::size_t rank_of(const transport::World& world) {
    return static_cast<std::size_t>(world.rank());
  }

  /// Uneven shares, some of them empty: rank r gets (r mod 3) * unit.
  [[nodiscard]] std::vector<std::size_t> shares(std::size_t unit) const {
    std::vector<std::size_t> shares;
    for (std::size_t r = 0; r < ranks(); ++r) shares.push_back(r % 3 * unit);
    return shares;
  }
  [[nodiscard]] static std::size_t before(const std::vector<std::size_t>& shares,
                                          std::size_t rank) {
    return std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::size_t{0});
  }
  /// Ranks that are roots in turn.
  [[nodiscard]] std::vector<int> roots() const {
    const int last = static_cast<int>(ranks()) - 1;
    return {0, last / 2, last};
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

/// Ranks 1-9, 13 and 16.
const auto conformance_ranks = testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16);
const auto conformance_memories = testing::Values(Memory::arena, Memory::ordinary, Memory::mixed);

TEST_P(ConformanceTest, AllreduceInPlaceAndOutOfPlace) {
  world().run([&](transport::World& world) {
    Communicator& comm = world.communicator();
    for (const std::size_t count : counts()) {
      Ints data = numbers(world, count);
      const Ints given = numbers(world, count);
      Ints greatest = ints(world, count);

      comm.allreduce(std::span(data)).wait();
      comm.allreduce<std::int32_t>(given, std::span(greatest), ReduceOp::max).wait();

      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[i], sum(i)) << i << " of " << count;
        ASSERT_EQ(greatest[i], number(ranks() - 1, i)) << i << " of " << count;
      }
      ASSERT_EQ(given, numbers(world, count));
    }
  });
}

TEST_P(ConformanceTest, AllreduceOfFloatsGivesAllRanksTheSameBits) {
  world().run([&](transport::World& world) {
    std::pmr::vector<float> data(10'007, resource(world, memory()));
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = 0.1F * static_cast<float>(rank_of(world) + 1) + 1e-3F * static_cast<float>(i);
    }
    std::vector<float> all(data.size() * ranks());

    world.communicator().allreduce(std::span(data)).wait();
    world.communicator().allgather<float>(data, std::span(all)).wait();

    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], data[i % data.size()]) << i;
  });
}

TEST_P(ConformanceTest, ReduceScatterOfEqualShares) {
  world().run([&](transport::World& world) {
    for (const std::size_t count : counts()) {
      const Ints given = numbers(world, count * ranks());
      Ints own = ints(world, count);

      world.communicator().reduce_scatter<std::int32_t>(given, std::span(own)).wait();

      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(own[i], sum(rank_of(world) * count + i));
    }
  });
}

TEST_P(ConformanceTest, ReduceScatterOfUnevenSharesInPlace) {
  world().run([&](transport::World& world) {
    for (const std::size_t unit : {std::size_t{1}, std::size_t{1003}}) {
      const auto share = shares(unit);
      const std::size_t first = before(share, rank_of(world));
      const std::size_t mine = share[rank_of(world)];
      Ints data = numbers(world, before(share, ranks()));

      world.communicator()
          .reduce_scatter<std::int32_t>(data, std::span(data).subspan(first, mine), ReduceOp::sum,
                                        share)
          .wait();

      for (std::size_t i = first; i < first + mine; ++i) ASSERT_EQ(data[i], sum(i));
    }
  });
}

TEST_P(ConformanceTest, AllgatherOfEqualAndUnevenShares) {
  world().run([&](transport::World& world) {
    Communicator& comm = world.communicator();
    for (const std::size_t count : counts()) {
      const auto share = shares(count);
      const Ints given = numbers(world, count);
      const Ints uneven = numbers(world, share[rank_of(world)]);
      Ints all = ints(world, count * ranks());
      Ints all_uneven = ints(world, before(share, ranks()));

      comm.allgather<std::int32_t>(given, std::span(all)).wait();
      comm.allgather<std::int32_t>(uneven, std::span(all_uneven), share).wait();

      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], number(i / count, i % count));
      for (std::size_t r = 0; r < ranks(); ++r) {
        for (std::size_t i = 0; i < share[r]; ++i) {
          ASSERT_EQ(all_uneven[before(share, r) + i], number(r, i));
        }
      }
    }
  });
}

// The channels of NHWC images: every rank has two of them.
TEST_P(ConformanceTest, AllgatherAndReduceScatterOfStridedRows) {
  world().run([&](transport::World& world) {
    constexpr std::size_t pixels = 700;
    constexpr std::size_t own = 2;
    const std::size_t all = own * ranks();
    Ints wide = ints(world, pixels * all);
    const Ints narrow = numbers(world, pixels * own);
    Ints back = ints(world, pixels * own);

    world.communicator()
        .allgather(Strided<const std::int32_t>(narrow.data(), pixels, own, own),
                   Strided<std::int32_t>(wide.data(), pixels, all, all))
        .wait();
    world.communicator()
        .reduce_scatter(Strided<const std::int32_t>(wide.data(), pixels, all, all),
                        Strided<std::int32_t>(back.data(), pixels, own, own))
        .wait();

    for (std::size_t p = 0; p < pixels; ++p) {
      for (std::size_t c = 0; c < all; ++c) {
        ASSERT_EQ(wide[p * all + c], number(c / own, p * own + c % own));
      }
      for (std::size_t c = 0; c < own; ++c) {
        ASSERT_EQ(back[p * own + c],
                  number(rank_of(world), p * own + c) * static_cast<std::int32_t>(ranks()));
      }
    }
  });
}

TEST_P(ConformanceTest, BroadcastAndReduceWithEveryKindOfRoot) {
  world().run([&](transport::World& world) {
    Communicator& comm = world.communicator();
    for (const std::size_t count : counts()) {
      for (const int root : roots()) {
        Ints data = numbers(world, count);
        Ints total = ints(world, world.rank() == root ? count : 0);

        comm.reduce<std::int32_t>(data, std::span(total), root).wait();
        comm.broadcast(std::span(data), root).wait();

        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(data[i], number(static_cast<std::size_t>(root), i));
        }
        for (std::size_t i = 0; i < total.size(); ++i) ASSERT_EQ(total[i], sum(i));
      }
    }
  });
}

TEST_P(ConformanceTest, AlltoallTransposes) {
  world().run([&](transport::World& world) {
    for (const std::size_t count : counts()) {
      const Ints given = numbers(world, count * ranks());
      Ints taken = ints(world, count * ranks());

      world.communicator().alltoall<std::int32_t>(given, std::span(taken)).wait();

      for (std::size_t i = 0; i < taken.size(); ++i) {
        ASSERT_EQ(taken[i], number(i / count, rank_of(world) * count + i % count));
      }
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

TEST_P(ConformanceTest, ManyOperationsMayBeOutstanding) {
  world().run([&](transport::World& world) {
    Communicator& comm = world.communicator();
    std::vector<Ints> buffers;
    for (std::size_t i = 0; i < 24; ++i) buffers.push_back(numbers(world, i * 97));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const std::span data(buffers[i]);
      requests.push_back(i % 3 == 2 ? comm.broadcast(data, 0) : comm.allreduce(data));
    }

    while (!requests.empty()) {
      requests.back().wait();
      requests.pop_back();
    }

    for (std::size_t i = 0; i < buffers.size(); ++i) {
      for (std::size_t e = 0; e < buffers[i].size(); ++e) {
        ASSERT_EQ(buffers[i][e], i % 3 == 2 ? number(0, e) : sum(e)) << i;
      }
    }
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

TEST_P(ConformanceTest, HalosTravelBothWaysAtOnce) {
  world().run([&](transport::World& world) {
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    const Ints given = numbers(world, 12'000);
    Ints from_left = ints(world, 4'000);
    Ints from_right = ints(world, 4'000);
    const auto rows = [](const Ints& data, std::size_t at) {
      return Strided<const std::int32_t>(data.data() + at, 1000, 4, 12);
    };
    const auto dense = [](Ints& data) { return Strided<std::int32_t>(std::span(data)); };

    const std::vector<Neighbour> neighbours = {
        Neighbour(left, rows(given, 0), dense(from_left), 0, 1),
        Neighbour(right, rows(given, 8), dense(from_right), 1, 0)};
    world.communicator().sendrecv(neighbours).wait();

    for (std::size_t i = 0; i < 4'000; ++i) {
      const std::size_t place = i / 4 * 12 + i % 4;
      ASSERT_EQ(from_left[i], number(static_cast<std::size_t>(left), place + 8));
      ASSERT_EQ(from_right[i], number(static_cast<std::size_t>(right), place));
    }
  });
}

template <typename T>
T from_float(float value) {
  return static_cast<T>(value);
}
template <>
transport::Bfloat16 from_float(float value) {
  return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U)};
}

template <typename T>
float to_float(T value) {
  return static_cast<float>(value);
}
float to_float(transport::Bfloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16U);
}

float to_float(transport::Float16 value) {
  return static_cast<float>(std::bit_cast<_Float16>(value.bits));
}
template <>
transport::Float16 from_float(float value) {
  return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))};
}

/// The number that a rank gives; the result of all fits into every type.
int given(ReduceOp op, int rank, int ranks, std::size_t i) {
  const int low = static_cast<int>(i % 3);
  switch (op) {
    case ReduceOp::prod:
      return rank == low % ranks ? 3 : 1;
    case ReduceOp::avg:
      return rank == 0 ? ranks * low : 0;
    default:
      return rank % 5 + low;  // the sum of 16 ranks is one of i8
  }
}

int expected_of(ReduceOp op, int ranks, std::size_t i) {
  int result = given(op, 0, ranks, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int next = given(op, rank, ranks, i);
    if (op == ReduceOp::sum || op == ReduceOp::avg) result += next;
    if (op == ReduceOp::min) result = std::min(result, next);
    if (op == ReduceOp::max) result = std::max(result, next);
    if (op == ReduceOp::prod) result *= next;
    if (op == ReduceOp::bit_and) result &= next;
    if (op == ReduceOp::bit_or) result |= next;
    if (op == ReduceOp::bit_xor) result ^= next;
  }
  return op == ReduceOp::avg ? result / ranks : result;
}

template <typename T>
void check_reduction(transport::World& world, Memory memory, ReduceOp op) {
  constexpr std::size_t count = 1025;
  std::pmr::vector<T> data(count, resource(world, memory));
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = from_float<T>(static_cast<float>(given(op, world.rank(), world.size(), i)));
  }

  world.communicator().allreduce(std::span(data), op).wait();

  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(to_float(data[i]), static_cast<float>(expected_of(op, world.size(), i)))
        << i << ", reduction " << static_cast<int>(op);
  }
}

template <typename T>
void check_reductions(transport::World& world, Memory memory, ReduceOp op) {
  if (op < ReduceOp::bit_and || transport::is_integer(transport::type_of<T>())) {
    check_reduction<T>(world, memory, op);
  }
}

/// One operation of one type on the wires, where what reduces is the same code; an average of each
/// type, because it is made in two steps between nodes.
bool meets(transport::ElementType type, ReduceOp op) {
  return op == ReduceOp::avg || static_cast<int>(type) % 8 == static_cast<int>(op);
}

TEST_P(ConformanceTest, EveryTypeAndReduction) {
  world().run([&](transport::World& world) {
    const auto check = [&]<typename... Types>(ReduceOp op) {
      const auto one = [&]<typename T>(T /*type*/) {
        if (backend() == Backend::shm || meets(transport::type_of<T>(), op)) {
          check_reductions<T>(world, memory(), op);
        }
      };
      (one(Types{}), ...);
    };
    for (int op = 0; op <= static_cast<int>(ReduceOp::bit_xor); ++op) {
      check.template operator()<float, double, transport::Bfloat16, transport::Float16, std::int8_t,
                                std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                                std::uint16_t, std::uint32_t, std::uint64_t>(
          static_cast<ReduceOp>(op));
    }
  });
}

// Without a fabric's library: one node, one rank per node, and several ranks per node, whose nodes
// are joined by the link over shared memory or by sockets.

INSTANTIATE_TEST_SUITE_P(Shm, ConformanceTest,
                         testing::Combine(testing::Values(Backend::shm), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(ShmNodes, ConformanceTest,
                         testing::Combine(testing::Values(Backend::shm_nodes), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(Hierarchy, ConformanceTest,
                         testing::Combine(testing::Values(Backend::hierarchy), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(Tcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::tcp), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(HierarchyTcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::hierarchy_tcp),
                                          testing::Values(Memory::arena), conformance_ranks),
                         name_of_conformance_test);

#ifdef RONDO_TEST_OFI
// Opening a link takes libfabric 30 ms and more, so that only some ranks meet every memory.
INSTANTIATE_TEST_SUITE_P(OfiTcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ofi_tcp),
                                          testing::Values(Memory::arena), conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(OfiTcpMemories, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ofi_tcp),
                                          testing::Values(Memory::ordinary, Memory::mixed),
                                          testing::Values(2, 3, 5)),
                         name_of_conformance_test);
#endif

#ifdef RONDO_TEST_UCX
// Many ranks connect slowly over TCP, so that only some of them meet every memory.
INSTANTIATE_TEST_SUITE_P(UcxTcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ucx_tcp),
                                          testing::Values(Memory::arena), conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(UcxTcpMemories, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ucx_tcp),
                                          testing::Values(Memory::ordinary, Memory::mixed),
                                          testing::Values(2, 3, 5, 8)),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(HierarchyUcx, ConformanceTest,
                         testing::Combine(testing::Values(Backend::hierarchy_ucx),
                                          conformance_memories, testing::Values(3, 5, 8)),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(UcxShm, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ucx_shm), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);
#endif

}  // namespace
}  // namespace rondo::test
