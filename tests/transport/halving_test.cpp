// Allreduce by halving in whole Worlds, over all links between nodes: among the owners of the
// shards of nodes that have several ranks, and flat between all ranks. Its schedule and its
// messages are tested by schedule_test.cpp and link_whole_test.cpp.

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/world.hpp"

namespace rondo::transport::halving_test {
namespace {

using test::Backend;
using test::Memory;

// Parameters: the table, and the way between nodes.
class HalvingTest : public testing::TestWithParam<std::tuple<const char*, Backend>> {
 protected:
  using Ints = std::pmr::vector<std::int32_t>;

  [[nodiscard]] static Backend backend() { return std::get<1>(GetParam()); }
  [[nodiscard]] static test::World world(int ranks) {
    WorldOptions options = test::quick_options();
    options.fabric = test::fabric_of(backend(), ranks);
    options.fabric.allreduce = std::get<0>(GetParam());
    return test::World(ranks, options);
  }
  /// Links of other libraries open slowly.
  [[nodiscard]] static std::vector<int> numbers_of_ranks() {
    const bool is_quick = backend() == Backend::shm_nodes || backend() == Backend::hierarchy ||
                          backend() == Backend::tcp;
    return is_quick ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9} : std::vector{2, 3, 8};
  }

  [[nodiscard]] static std::int32_t number(std::size_t rank, std::size_t i) {
    return static_cast<std::int32_t>(rank * 100'003 + i);
  }
  [[nodiscard]] static std::int32_t sum(std::size_t ranks, std::size_t i) {
    return static_cast<std::int32_t>(ranks * (ranks - 1) / 2 * 100'003 + ranks * i);
  }
  [[nodiscard]] static Ints numbers(World& world, Memory memory, std::size_t count) {
    Ints data(count, 0, test::resource(world, memory));
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = number(static_cast<std::size_t>(world.rank()), i);
    }
    return data;
  }

  /// In place, and out of place.
  static void reduce(World& world, Memory memory, std::size_t count) {
    const auto ranks = static_cast<std::size_t>(world.size());
    Ints data = numbers(world, memory, count);
    const Ints given = data;
    Ints greatest(count, -1, test::resource(world, memory));

    Request first =
        world.communicator().allreduce<std::int32_t>(given, std::span(greatest), ReduceOp::max);
    world.communicator().allreduce(std::span(data)).wait();
    first.wait();

    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(data[i], sum(ranks, i)) << i << " of " << count;
      ASSERT_EQ(greatest[i], number(ranks - 1, i)) << i << " of " << count;
    }
    ASSERT_EQ(given, numbers(world, memory, count));
  }
};

// The counts straddle the number of ranks, and the lines of which halves are made.
TEST_P(HalvingTest, ReducesInPlaceAndOutOfPlace) {
  for (const int ranks : numbers_of_ranks()) {
    world(ranks).run([&](World& world) {
      const auto size = static_cast<std::size_t>(ranks);
      for (const Memory memory : {Memory::arena, Memory::ordinary, Memory::mixed}) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1, 16 * size, 10'007UL}) {
          reduce(world, memory, count);
        }
      }
    });
  }
}

TEST_P(HalvingTest, GivesAllRanksTheSameBits) {
  for (const int ranks : {5, 8}) {
    world(ranks).run([](World& world) {
      std::vector<float> data(10'007);
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = 0.1F * static_cast<float>(world.rank() + 1) + 1e-3F * static_cast<float>(i);
      }
      std::vector<float> all(data.size() * static_cast<std::size_t>(world.size()));

      world.communicator().allreduce(std::span(data)).wait();
      world.communicator().allgather<float>(data, std::span(all)).wait();

      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], data[i % data.size()]) << i;
    });
  }
}

TEST_P(HalvingTest, NamesTheRankThatIsMissing) {
  constexpr int ranks = 5;
  for (const int absent : {0, 1, ranks - 1}) {
    world(ranks).run_without(absent, [absent](World& world) {
      std::vector<std::int32_t> data(1000, 1);
      // Ranks that need nothing of the absent rank may be done before.
      Request first = world.communicator().allreduce(std::span(data));
      Request second;
      try {
        first.wait();
        second = world.communicator().allreduce(std::span(data));
        second.wait();
        world.communicator().barrier().wait();
        ADD_FAILURE() << "nothing failed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
        EXPECT_EQ(error.detail().rank, absent) << error.what();
      }
    });
  }
}

std::string name_of_case(const testing::TestParamInfo<HalvingTest::ParamType>& info) {
  return test::name_of(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Levels, HalvingTest,
                         testing::Combine(testing::Values("rh:0-max"),
                                          testing::ValuesIn(test::node_backends())),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(Flat, HalvingTest,
                         testing::Combine(testing::Values("flat-rh:0-max"),
                                          testing::ValuesIn(test::node_backends())),
                         name_of_case);

}  // namespace
}  // namespace rondo::transport::halving_test
