// Collectives of nodes with several ranks that the table of sizes keeps flat: every rank sends what
// it would send if it were alone on its node.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/link_traffic.hpp"
#include "support/world.hpp"

namespace rondo::transport::flat_test {
namespace {

using shm::Collective;
using test::LinkAlgorithm;
using test::LinkTraffic;

constexpr int ranks = 4;

[[nodiscard]] test::World world_with(const std::string& table) {
  WorldOptions options = test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 2, .allreduce = table};
  return test::World(ranks, options);
}

/// The traffic of `rank` for a collective of which every rank has so many bytes in and out.
LinkTraffic traffic_of(LinkAlgorithm algorithm, Collective collective, std::size_t in,
                       std::size_t out, int rank) {
  Posted posted;
  posted.fingerprint = {.collective = collective, .type = ElementType::i32, .root = 1};
  posted.input = {nullptr, ElementType::i32, 1, in, in};
  posted.output = {nullptr, ElementType::i32, 1, out, out};
  posted.row_bytes_each = std::min(in, out);
  return link_traffic_of(algorithm, posted, static_cast<std::size_t>(rank), ranks,
                         Group().segment_bytes);
}

/// The traffic that the rank has sent while `body` ran, to ranks of any node.
template <typename Body>
LinkTraffic sent_during(World& world, Body body) {
  const Counters begin = world.counters();
  body();
  const Counters end = world.counters();
  return {end.sent_messages - begin.sent_messages, end.sent_bytes - begin.sent_bytes};
}

class FlatTest : public testing::TestWithParam<std::size_t> {
 protected:
  using Ints = std::vector<std::int32_t>;

  [[nodiscard]] static std::size_t count() { return GetParam(); }
  [[nodiscard]] static std::size_t bytes() { return count() * sizeof(std::int32_t); }
  [[nodiscard]] static test::World world() { return world_with("flat-rd:0-16k;flat-ring:16k-max"); }
  [[nodiscard]] static LinkAlgorithm of_allreduce() {
    return bytes() < (std::size_t{16} << 10U) ? LinkAlgorithm::doubling : LinkAlgorithm::ring;
  }
  /// The sum over all ranks is 0 + 1 + 2 + 3, and 4 times the index.
  [[nodiscard]] static Ints values(int rank, std::size_t number) {
    Ints data(number);
    for (std::size_t i = 0; i < number; ++i) data[i] = rank + static_cast<std::int32_t>(i);
    return data;
  }
  [[nodiscard]] static Ints sums(std::size_t begin, std::size_t number) {
    Ints data(number);
    for (std::size_t i = 0; i < number; ++i) data[i] = 6 + 4 * static_cast<std::int32_t>(begin + i);
    return data;
  }
};

TEST_P(FlatTest, AllreduceRunsBetweenAllRanks) {
  world().run([](World& world) {
    Ints data = values(world.rank(), count());
    const LinkTraffic sent =
        sent_during(world, [&] { world.communicator().allreduce(std::span(data)).wait(); });
    EXPECT_EQ(data, sums(0, count()));
    EXPECT_EQ(sent,
              traffic_of(of_allreduce(), Collective::allreduce, bytes(), bytes(), world.rank()));
  });
}

TEST_P(FlatTest, ReduceScatterAndAllgatherAreRings) {
  world().run([](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const Ints in = values(world.rank(), ranks * count());
    Ints share(count());
    EXPECT_EQ(sent_during(
                  world,
                  [&] {
                    world.communicator().reduce_scatter<std::int32_t>(in, std::span(share)).wait();
                  }),
              traffic_of(LinkAlgorithm::ring, Collective::reduce_scatter, ranks * bytes(), bytes(),
                         world.rank()));
    EXPECT_EQ(share, sums(rank * count(), count()));

    Ints out(ranks * count());
    EXPECT_EQ(
        sent_during(
            world,
            [&] { world.communicator().allgather<std::int32_t>(share, std::span(out)).wait(); }),
        traffic_of(LinkAlgorithm::ring, Collective::allgather, bytes(), ranks * bytes(),
                   world.rank()));
    EXPECT_EQ(out, sums(0, ranks * count()));
  });
}

TEST_P(FlatTest, BroadcastAndReduceAreTreesOfAllRanks) {
  world().run([](World& world) {
    Communicator& comm = world.communicator();
    Ints data = values(world.rank() == 1 ? 1 : 100, count());
    EXPECT_EQ(
        sent_during(world, [&] { comm.broadcast(std::span(data), 1).wait(); }),
        traffic_of(LinkAlgorithm::tree, Collective::broadcast, bytes(), bytes(), world.rank()));
    EXPECT_EQ(data, values(1, count()));

    const Ints in = values(world.rank(), count());
    Ints out(world.rank() == 1 ? count() : 0);
    EXPECT_EQ(sent_during(world, [&] { comm.reduce<std::int32_t>(in, std::span(out), 1).wait(); }),
              traffic_of(LinkAlgorithm::tree, Collective::reduce, bytes(), bytes(), world.rank()));
    if (world.rank() == 1) {
      EXPECT_EQ(out, sums(0, count()));
    }
  });
}

TEST_P(FlatTest, AlltoallIsPairwise) {
  world().run([](World& world) {
    const Ints in = values(world.rank(), ranks * count());
    Ints out(ranks * count());
    EXPECT_EQ(
        sent_during(
            world, [&] { world.communicator().alltoall<std::int32_t>(in, std::span(out)).wait(); }),
        traffic_of(LinkAlgorithm::pairwise, Collective::alltoall, ranks * bytes(), ranks * bytes(),
                   world.rank()));
    const std::size_t mine = static_cast<std::size_t>(world.rank()) * count();
    for (int from = 0; from < ranks; ++from) {
      EXPECT_EQ(out[static_cast<std::size_t>(from) * count()],
                from + static_cast<std::int32_t>(mine));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Counts, FlatTest, testing::Values(5U, 100'003U));

TEST(FlatHalvingTest, RunsBetweenAllRanks) {
  world_with("flat-rh:0-max").run([](World& world) {
    std::vector<std::int32_t> data(1000, world.rank() + 1);
    const std::size_t bytes = data.size() * sizeof(std::int32_t);
    EXPECT_EQ(
        sent_during(world, [&] { world.communicator().allreduce(std::span(data)).wait(); }),
        traffic_of(LinkAlgorithm::halving, Collective::allreduce, bytes, bytes, world.rank()));
    EXPECT_EQ(data, std::vector<std::int32_t>(1000, 1 + 2 + 3 + 4));
  });
}

TEST(FlatBarrierTest, IsADisseminationOfAllRanks) {
  world_with("flat-rd:0-max").run([](World& world) {
    EXPECT_EQ(sent_during(world, [&] { world.communicator().barrier().wait(); }).messages, 2U);
  });
}

// Up to 1 KiB flat: every rank sends. Above, one rank of each node sends one message.
TEST(FlatRangeTest, EndsWhereTheTableSays) {
  world_with("flat-rd:0-1k;rd:1k-max").run([](World& world) {
    std::vector<std::int32_t> data(255);
    const auto allreduce = [&] { world.communicator().allreduce(std::span(data)).wait(); };
    EXPECT_EQ(sent_during(world, allreduce).messages, 2U);
    data.resize(256);
    EXPECT_EQ(sent_during(world, allreduce).messages, world.rank() % 2 == 0 ? 1U : 0U);
  });
}

}  // namespace
}  // namespace rondo::transport::flat_test
