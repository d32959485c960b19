// The counters equal the closed forms, and these the textbook's.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "collective/traffic.hpp"
#include "support/world.hpp"

namespace rondo::transport {
namespace {

using test::Memory;

Posted allreduce_of(std::size_t floats) {
  Posted posted;
  posted.fingerprint = {
      .collective = shm::Collective::allreduce, .type = ElementType::f32, .count = floats};
  return posted;
}

TEST(TrafficTest, OfADirectAllreduceIsThatOfARing) {
  constexpr std::size_t floats = 16 * 840;  // divisible by 16 floats and all of 1..8 ranks
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Traffic traffic = traffic_of(allreduce_of(floats), Regime::direct, rank, ranks);
      EXPECT_EQ((traffic.loaded_bytes + traffic.stored_bytes) * ranks,
                2 * (ranks - 1) * floats * sizeof(float));
    }
  }
}

TEST(TrafficTest, OfAllRanksTogetherDoesNotDependOnHowSlicesFall) {
  constexpr std::size_t floats = 10'007;
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    for (const Regime regime : {Regime::direct, Regime::staged}) {
      std::uint64_t bytes = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Traffic traffic = traffic_of(allreduce_of(floats), regime, rank, ranks);
        bytes += traffic.loaded_bytes + traffic.stored_bytes;
      }
      EXPECT_EQ(bytes, 2 * (ranks - 1) * floats * sizeof(float));
    }
  }
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

    const bool small = floats * sizeof(float) <= shm::bulk_bytes;
    const bool direct = memory == Memory::arena;
    const Regime regime = small ? Regime::small : direct ? Regime::direct : Regime::staged;
    const Traffic expected = traffic_of(allreduce_of(floats), regime, rank, size);
    EXPECT_EQ(reduced.loaded_bytes - before.loaded_bytes, expected.loaded_bytes);
    EXPECT_EQ(reduced.stored_bytes - before.stored_bytes, expected.stored_bytes);
    EXPECT_EQ(sent.moved_bytes() - reduced.moved_bytes(), rank == 0 ? 0 : floats * sizeof(float));
    EXPECT_EQ(gathered.moved_bytes() - sent.moved_bytes(), (size - 1) * floats * sizeof(float));
    EXPECT_EQ(gathered.operations - before.operations, 3U);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, CountersTest,
                         testing::Combine(testing::Values(Memory::arena, Memory::mixed),
                                          testing::Values(1, 2, 3, 5),
                                          testing::Values(0U, 7U, 1025U, 150'001U)));

}  // namespace
}  // namespace rondo::transport
