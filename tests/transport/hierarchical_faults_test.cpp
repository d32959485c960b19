// How the collectives of groups with several ranks on a node fail: a rank is missing, posts
// something else, or posts nothing.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "memory/control_block.hpp"
#include "support/world.hpp"

namespace rondo::transport::hierarchical_faults_test {
namespace {

using shm::Collective;

constexpr Collective collectives[] = {
    Collective::allreduce,      Collective::reduce,  Collective::broadcast, Collective::allgather,
    Collective::reduce_scatter, Collective::barrier, Collective::alltoall};

// Posts one collective of `count` elements for each rank.
Request post(Communicator& comm, Collective collective, std::span<const std::int32_t> in,
             std::span<std::int32_t> out, std::size_t count, int root) {
  switch (collective) {
    case Collective::allreduce:
      return comm.allreduce<std::int32_t>(in.first(count), out.first(count));
    case Collective::reduce:
      return comm.reduce<std::int32_t>(in.first(count), out.first(count), root);
    case Collective::broadcast:
      return comm.broadcast(out.first(count), root);
    case Collective::allgather:
      return comm.allgather<std::int32_t>(in.first(count), out);
    case Collective::reduce_scatter:
      return comm.reduce_scatter<std::int32_t>(in, out.first(count));
    case Collective::alltoall:
      return comm.alltoall<std::int32_t>(in, out);
    default:
      return comm.barrier();
  }
}

// Parameters: collective, elements.
class HierarchicalFaultsTest : public testing::TestWithParam<std::tuple<Collective, std::size_t>> {
 protected:
  static constexpr int ranks = 5;  // on 3 nodes
  [[nodiscard]] static test::World world() {
    WorldOptions options = test::quick_options();
    options.fabric = {.name = "shm", .fake_nodes = 3};
    return test::World(ranks, options);
  }
};

TEST_P(HierarchicalFaultsTest, NamesTheRankThatIsMissing) {
  const auto [collective, count] = GetParam();
  for (const int absent : {0, 1, ranks - 1}) {
    world().run_without(absent, [&, which = collective, n = count](World& world) {
      const std::vector<std::int32_t> in(n * ranks, 1);
      std::vector<std::int32_t> out(n * ranks);
      // Ranks that need nothing of the absent rank may be done before.
      Request first = post(world.communicator(), which, in, out, n, 2);
      Request request;
      try {
        first.wait();
        request = world.communicator().barrier();
        request.wait();
        ADD_FAILURE() << "nothing failed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
        EXPECT_EQ(error.detail().rank, absent) << error.what();
      }
    });
  }
}

TEST_P(HierarchicalFaultsTest, NamesAMismatch) {
  const auto [collective, count] = GetParam();
  world().run([&, which = collective, n = count](World& world) {
    const std::vector<std::int32_t> in(n * ranks, 1);
    std::vector<std::int32_t> out(n * ranks);
    Communicator& comm = world.communicator();
    // One rank of the first node posts something else.
    Request first = world.rank() == 1 ? comm.allreduce(std::span(out).first(n + 1))
                                      : post(comm, which, in, out, n, 2);
    try {
      first.wait();
      comm.barrier().wait();
      ADD_FAILURE() << "nothing failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch) << error.what();
      EXPECT_NE(std::string(error.what()).find("posted different operations"), std::string::npos)
          << error.what();
    }
  });
}

TEST_P(HierarchicalFaultsTest, EndsAtTheDeadlineWhenARankPostsNothing) {
  const auto [collective, count] = GetParam();
  WorldOptions options = test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 3};
  options.deadline = std::chrono::milliseconds(300);
  test::World(ranks, options).run([&, which = collective, n = count](World& world) {
    const std::vector<std::int32_t> in(n * ranks, 1);
    std::vector<std::int32_t> out(n * ranks);
    try {
      // The last rank waits for a message that nobody sends.
      Request request = world.rank() == ranks - 1
                            ? world.communicator().recv(std::span(out).first(n), 0, 7)
                            : post(world.communicator(), which, in, out, n, 2);
      request.wait();
      world.communicator().barrier().wait();
      ADD_FAILURE() << "nothing failed";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Errc::deadline_exceeded || error.code() == Errc::peer_lost)
          << error.what();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(ShmNodes, HierarchicalFaultsTest,
                         testing::Combine(testing::ValuesIn(collectives),
                                          testing::Values(std::size_t{3}, std::size_t{200'003})));

}  // namespace
}  // namespace rondo::transport::hierarchical_faults_test
