// Collectives of nodes with several ranks that the table of sizes keeps flat: every rank sends what
// it would send if it were alone on its node.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/call_buffers.hpp"
#include "support/link_data.hpp"
#include "support/link_traffic.hpp"
#include "support/world.hpp"

namespace rondo::transport::flat_test {
namespace {

using test::LinkAlgorithm;
using test::LinkTraffic;

constexpr int ranks = 4;

[[nodiscard]] test::World world_with(const std::string& table) {
  WorldOptions options = test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 2, .allreduce = table};
  return test::World(ranks, options);
}

/// The traffic that the rank has sent while `body` ran, to ranks of any node.
template <typename Body>
LinkTraffic sent_during(World& world, Body body) {
  const Counters begin = world.counters();
  body();
  const Counters end = world.counters();
  return {end.sent_messages - begin.sent_messages, end.sent_bytes - begin.sent_bytes};
}

/// Makes a call of the table: what it gives, and that the rank sends what the closed form says.
void expect_flat(World& world, const char* name, LinkAlgorithm algorithm, std::size_t count) {
  test::CallBuffers<> data(world.communicator(), std::pmr::get_default_resource(),
                           test::call_named(name), count, 1);
  data.fill();
  const LinkTraffic sent = sent_during(world, [&] { data.post(world.communicator()).wait(); });
  EXPECT_EQ(data.fault(), "");
  EXPECT_EQ(sent, link_traffic_of(algorithm, test::posted_of(data, ranks), data.rank(), ranks,
                                  Group().segment_bytes))
      << name;
}

// Parameter: elements.
class FlatTest : public testing::TestWithParam<std::size_t> {};

TEST_P(FlatTest, EveryCollectiveRunsBetweenAllRanks) {
  const std::size_t count = GetParam();
  const bool is_short = count * sizeof(std::int32_t) < (std::size_t{16} << 10U);
  world_with("flat-rd:0-16k;flat-ring:16k-max").run([&](World& world) {
    expect_flat(world, "AllreduceInPlace", is_short ? LinkAlgorithm::doubling : LinkAlgorithm::ring,
                count);
    expect_flat(world, "ReduceScatter", LinkAlgorithm::ring, count);
    expect_flat(world, "Allgather", LinkAlgorithm::ring, count);
    expect_flat(world, "Broadcast", LinkAlgorithm::tree, count);
    expect_flat(world, "Reduce", LinkAlgorithm::tree, count);
    expect_flat(world, "Alltoall", LinkAlgorithm::pairwise, count);
  });
}

INSTANTIATE_TEST_SUITE_P(Counts, FlatTest, testing::Values(5U, 100'003U));

TEST(FlatHalvingTest, RunsBetweenAllRanks) {
  world_with("flat-rh:0-max").run([](World& world) {
    expect_flat(world, "AllreduceInPlace", LinkAlgorithm::halving, 1000);
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
