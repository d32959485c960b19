// The cases of the conformance suite. Compiled into the program of each backend.

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/conformance.hpp"

namespace rondo::test {

using transport::Communicator;
using transport::Neighbour;
using transport::ReduceOp;
using transport::Request;
using transport::Strided;

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

template <typename T>
void check_reduction(transport::World& world, Memory memory, ReduceOp op) {
  constexpr std::size_t count = 1025;
  std::pmr::vector<T> data(count, resource(world, memory));
  const auto ranks = static_cast<std::size_t>(world.size());
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = from_float<T>(static_cast<float>(world.rank()) + static_cast<float>(i % 3));
  }

  world.communicator().allreduce(std::span(data), op).wait();

  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t low = i % 3;
    const std::size_t high = ranks - 1 + low;
    const std::size_t total = (low + high) * ranks / 2;
    const std::size_t expected = op == ReduceOp::sum ? total : (op == ReduceOp::min ? low : high);
    ASSERT_EQ(to_float(data[i]), static_cast<float>(expected)) << i;
  }
}

TEST_P(ConformanceTest, EveryTypeAndReduction) {
  world().run([&](transport::World& world) {
    const bool all = backend() == Backend::shm;
    int pair = 0;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
      // Elsewhere each type meets one operation: what reduces is the same code.
      const auto wanted = [&] { return all || pair++ % 3 == static_cast<int>(op); };
      if (wanted()) check_reduction<float>(world, memory(), op);
      if (wanted()) check_reduction<double>(world, memory(), op);
      if (wanted()) check_reduction<transport::Bfloat16>(world, memory(), op);
      if (wanted()) check_reduction<std::int32_t>(world, memory(), op);
      if (wanted()) check_reduction<std::int64_t>(world, memory(), op);
      if (wanted()) check_reduction<std::uint8_t>(world, memory(), op);
    }
  });
}

}  // namespace rondo::test
