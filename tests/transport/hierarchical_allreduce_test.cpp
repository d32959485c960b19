// Allreduce of groups with several ranks on some node, in several blocks.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/link_traffic.hpp"
#include "support/world.hpp"

namespace rondo::transport::hierarchical_allreduce_test {
namespace {

using test::Memory;

constexpr std::size_t several_blocks = 4'500'001;  // of two shards of 4 MiB

std::int32_t value(std::size_t rank, std::size_t i) {
  return static_cast<std::int32_t>(rank * 1'000'003 + i);
}
std::int32_t sum(std::size_t ranks, std::size_t i) {
  return static_cast<std::int32_t>(ranks * (ranks - 1) / 2 * 1'000'003 + ranks * i);
}

// Counts what differs: one message for millions of elements.
std::size_t wrong(std::span<const std::int32_t> data, std::size_t ranks) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < data.size(); ++i) count += data[i] == sum(ranks, i) ? 0 : 1;
  return count;
}

// Parameters: memory, ranks, nodes.
class HierarchicalAllreduceTest : public testing::TestWithParam<std::tuple<Memory, int, int>> {
 protected:
  [[nodiscard]] static Memory memory() { return std::get<0>(GetParam()); }
  [[nodiscard]] static test::World world() {
    WorldOptions options = test::quick_options();
    options.fabric.name = "shm";
    options.fabric.fake_nodes = std::get<2>(GetParam());
    return test::World(std::get<1>(GetParam()), options);
  }
};

TEST_P(HierarchicalAllreduceTest, SumsBlockByBlock) {
  world().run([](World& world) {
    const auto size = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    std::pmr::vector<std::int32_t> data(several_blocks, test::resource(world, memory()));
    std::pmr::vector<std::int32_t> out(several_blocks, test::resource(world, memory()));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i);

    world.communicator().allreduce<std::int32_t>(data, std::span(out)).wait();
    const std::uint64_t operations = world.counters().operations;
    world.communicator().allreduce(std::span(data)).wait();

    EXPECT_EQ(wrong(out, size), 0U);
    EXPECT_EQ(wrong(data, size), 0U);
    EXPECT_EQ(world.counters().operations - operations, 1U);
  });
}

TEST_P(HierarchicalAllreduceTest, SendsBetweenNodesWhatTheClosedFormSays) {
  const int nodes = std::get<2>(GetParam());
  world().run([nodes](World& world) {
    std::vector<int> members(static_cast<std::size_t>(nodes));
    std::size_t node_rank = 0;
    for (int r = 0; r < world.size(); ++r) {
      const auto node = static_cast<std::size_t>(world.ranks()[static_cast<std::size_t>(r)].node);
      if (r == world.rank()) node_rank = static_cast<std::size_t>(members[node]);
      members[node] += 1;
    }
    const auto node =
        static_cast<std::size_t>(world.ranks()[static_cast<std::size_t>(world.rank())].node);
    const auto shards = static_cast<std::size_t>(*std::ranges::min_element(members));
    for (const std::size_t count : {std::size_t{3}, std::size_t{100'003}, several_blocks}) {
      std::pmr::vector<std::int32_t> data(count, 1, test::resource(world, memory()));
      const Counters before = world.counters();

      world.communicator().allreduce(std::span(data)).wait();

      Posted posted;
      posted.fingerprint = {.collective = shm::Collective::allreduce, .type = ElementType::i32};
      posted.input = {.rows = 1, .row_bytes = count * sizeof(std::int32_t)};
      const Counters after = world.counters();
      EXPECT_EQ((test::LinkTraffic{after.fabric_messages - before.fabric_messages,
                                   after.fabric_bytes - before.fabric_bytes}),
                test::hierarchical_traffic_of(posted, AlgorithmTable(), shards, node_rank, node,
                                              members.size(), Group().segment_bytes));
    }
  });
}

TEST_P(HierarchicalAllreduceTest, FailsWhenARankIsMissing) {
  const int absent = std::get<1>(GetParam()) - 1;
  world().run_without(absent, [](World& world) {
    std::pmr::vector<std::int32_t> data(several_blocks, 1, test::resource(world, memory()));

    Request request = world.communicator().allreduce(std::span(data));

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

INSTANTIATE_TEST_SUITE_P(ShmNodes, HierarchicalAllreduceTest,
                         testing::Values(std::tuple{Memory::arena, 4, 2},
                                         std::tuple{Memory::ordinary, 5, 2},
                                         std::tuple{Memory::mixed, 5, 3}));

}  // namespace
}  // namespace rondo::transport::hierarchical_allreduce_test
