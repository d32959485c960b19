// The loops inside a node count what the closed forms say, and these equal the textbook's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "collective/node/protocol.hpp"
#include "collective/team_work.hpp"
#include "support/world.hpp"

namespace rondo::transport::traffic_test {
namespace {

using test::Memory;

// The bytes that one rank moves for one operation.
struct Traffic {
  std::uint64_t loaded_bytes = 0;
  std::uint64_t stored_bytes = 0;

  [[nodiscard]] bool operator==(const Traffic&) const noexcept = default;
};

// The slices that one rank reduces of a staged allreduce or reduce: each round is cut anew.
std::uint64_t staged_slice_bytes(std::size_t bytes, std::size_t rank, std::size_t ranks) {
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < bytes; begin += staging_bytes) {
    const std::size_t round = std::min(staging_bytes, bytes - begin);
    sum += slice(round, ranks, rank, cache_line_bytes).size();
  }
  return sum;
}

// For an allreduce or a reduce. A rank loads its slice of all other inputs, and stores its result
// for all that want it. In the small protocol each rank that wants it loads everything instead.
Traffic traffic_of(const Posted& posted, Protocol protocol, std::size_t rank, std::size_t ranks) {
  const std::size_t element = size_of(posted.fingerprint.type);
  const std::size_t bytes = posted.fingerprint.count * element;
  const bool to_all = posted.fingerprint.collective == shm::Collective::allreduce;
  const bool receives = to_all || posted.is_root(rank);
  if (protocol == Protocol::small) return {.loaded_bytes = receives ? (ranks - 1) * bytes : 0};
  const std::uint64_t own =
      protocol == Protocol::staged
          ? staged_slice_bytes(bytes, rank, ranks)
          : slice(posted.fingerprint.count, ranks, rank, cache_line_bytes / element).size() *
                element;
  const std::uint64_t to_others = to_all ? ranks - 1 : receives ? 0 : 1;
  return {.loaded_bytes = (ranks - 1) * own, .stored_bytes = to_others * own};
}

Posted posted_of(shm::Collective collective, std::size_t floats) {
  Posted posted;
  posted.fingerprint = {
      .collective = collective, .type = ElementType::f32, .root = 0, .count = floats};
  return posted;
}

Posted allreduce_of(std::size_t floats) { return posted_of(shm::Collective::allreduce, floats); }

// The bytes that all ranks move together.
std::uint64_t moved_by_all(const Posted& posted, Protocol protocol, std::size_t ranks) {
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Traffic traffic = traffic_of(posted, protocol, rank, ranks);
    bytes += traffic.loaded_bytes + traffic.stored_bytes;
  }
  return bytes;
}

TEST(TrafficTest, OfAllRanksTogetherDoesNotDependOnHowSlicesFall) {
  constexpr std::size_t floats = 10'007;
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    for (const Protocol protocol : {Protocol::direct, Protocol::staged}) {
      EXPECT_EQ(moved_by_all(allreduce_of(floats), protocol, ranks),
                2 * (ranks - 1) * floats * sizeof(float));
    }
  }
}

// Every input crosses to whoever reduces it, and what the root has not reduced itself to the root.
TEST(TrafficTest, OfAReduceIsItsInputsAndTheRestOfTheResult) {
  constexpr std::size_t floats = 16 * 840;
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    const Posted posted = posted_of(shm::Collective::reduce, floats);
    const std::size_t once = (ranks - 1) * floats * sizeof(float);
    EXPECT_EQ(moved_by_all(posted, Protocol::direct, ranks), once + once / ranks);
    EXPECT_EQ(moved_by_all(posted, Protocol::small, ranks), once);
  }
}

// For an allreduce. Two ranks have a faster way above 1 KiB, if they reach each other's memory.
Protocol protocol_of(Memory memory, std::size_t ranks, std::size_t bytes) {
  const bool few = bytes <= shm::bulk_bytes;
  const bool is_small = ranks == 2 ? bytes <= 1024 || (few && memory == Memory::ordinary) : few;
  if (is_small) return Protocol::small;
  return memory == Memory::arena ? Protocol::direct : Protocol::staged;
}

// Parameters: memory, ranks, floats.
class CountersTest : public testing::TestWithParam<std::tuple<Memory, int, std::size_t>> {};

TEST_P(CountersTest, EqualTheClosedForms) {
  const Memory memory = std::get<0>(GetParam());
  const std::size_t floats = std::get<2>(GetParam());
  test::World(std::get<1>(GetParam())).run([memory, floats](World& world) {
    std::pmr::vector<float> data(floats, 1.0F, test::resource(world, memory));
    std::pmr::vector<float> all(floats * static_cast<std::size_t>(world.size()),
                                test::resource(world, memory));
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto size = static_cast<std::size_t>(world.size());
    const Counters before = world.counters();

    world.communicator().allreduce(std::span(data)).wait();
    const Counters reduced = world.counters();
    world.communicator().broadcast(std::span(data), 0).wait();
    const Counters sent = world.counters();
    world.communicator().allgather(data, std::span(all)).wait();
    const Counters gathered = world.counters();

    const Protocol protocol = protocol_of(memory, size, floats * sizeof(float));
    const Traffic expected = traffic_of(allreduce_of(floats), protocol, rank, size);
    EXPECT_EQ(reduced.loaded_bytes - before.loaded_bytes, expected.loaded_bytes);
    EXPECT_EQ(reduced.stored_bytes - before.stored_bytes, expected.stored_bytes);
    EXPECT_EQ(sent.moved_bytes() - reduced.moved_bytes(), rank == 0 ? 0 : floats * sizeof(float));
    EXPECT_EQ(gathered.moved_bytes() - sent.moved_bytes(), (size - 1) * floats * sizeof(float));
    EXPECT_EQ(gathered.operations - before.operations, 3U);
  });
}

// The bytes that the operations of post(communicator) moved on this rank's account.
template <typename Post>
Traffic moved_by(World& world, Post post) {
  const Counters before = world.counters();
  post(world.communicator()).wait();
  const Counters after = world.counters();
  return {after.loaded_bytes - before.loaded_bytes, after.stored_bytes - before.stored_bytes};
}

TEST_P(CountersTest, EqualTheClosedFormsOfWhatEveryRankGetsADifferentPartOf) {
  const Memory memory = std::get<0>(GetParam());
  const std::size_t floats = std::get<2>(GetParam());
  test::World(std::get<1>(GetParam())).run([memory, floats](World& world) {
    const auto size = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    std::pmr::vector<float> in(floats * size, 1.0F, test::resource(world, memory));
    std::pmr::vector<float> out(floats * size, test::resource(world, memory));
    const auto part = std::span(out).first(floats);

    const Traffic scattered =
        moved_by(world, [&](auto& comm) { return comm.reduce_scatter(in, part); });
    const Traffic exchanged =
        moved_by(world, [&](auto& comm) { return comm.alltoall(in, std::span(out)); });
    const Traffic reduced = moved_by(
        world, [&](auto& comm) { return comm.reduce(std::span(in).first(floats), part, 0); });

    const Traffic parts_of_peers{.loaded_bytes = (size - 1) * floats * sizeof(float)};
    EXPECT_EQ(scattered, parts_of_peers);
    EXPECT_EQ(exchanged, parts_of_peers);
    const bool small = floats * sizeof(float) <= shm::bulk_bytes;
    const bool direct = memory == Memory::arena;
    const Protocol protocol = small    ? Protocol::small
                              : direct ? Protocol::direct
                                       : Protocol::staged;
    EXPECT_EQ(reduced,
              traffic_of(posted_of(shm::Collective::reduce, floats), protocol, rank, size));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shm, CountersTest,
    testing::Combine(testing::Values(Memory::arena, Memory::ordinary, Memory::mixed),
                     testing::Values(1, 2, 3, 5),
                     testing::Values(0U, 7U, 256U, 257U, 600U, 1025U, 150'001U)));

}  // namespace
}  // namespace rondo::transport::traffic_test
