// How the collectives of groups with several ranks on a node fail: a rank is missing, posts
// something else, or posts nothing.

#include <chrono>
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

#include "support/call_buffers.hpp"
#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::hierarchical_faults_test {
namespace {

using Buffers = test::CallBuffers<>;

// Parameters: call of the table of collectives, elements.
class HierarchicalFaultsTest : public testing::TestWithParam<std::tuple<const char*, std::size_t>> {
 protected:
  static constexpr int ranks = 5;  // on 3 nodes
  [[nodiscard]] static test::World world(WorldOptions options = test::quick_options()) {
    options.fabric = {.name = "shm", .fake_nodes = 3};
    return test::World(ranks, options);
  }
  // The buffers of this rank for the call, whose root is rank 2.
  [[nodiscard]] static Buffers buffers(World& world) {
    return {world.communicator(), std::pmr::get_default_resource(),
            test::call_named(std::get<0>(GetParam())), count(), 2};
  }
  [[nodiscard]] static std::size_t count() { return std::get<1>(GetParam()); }
};

TEST_P(HierarchicalFaultsTest, NamesTheRankThatIsMissing) {
  for (const int absent : {0, 1, ranks - 1}) {
    world().run_without(absent, [absent](World& world) {
      Buffers data = buffers(world);
      // Ranks that need nothing of the absent rank may be done before.
      Request first = data.post(world.communicator());
      Request request;
      const auto wait_for_both = [&] {
        first.wait();
        request = world.communicator().barrier();
        request.wait();
      };
      test::expect_error(Errc::peer_lost, wait_for_both, absent);
    });
  }
}

TEST_P(HierarchicalFaultsTest, NamesAMismatch) {
  world().run([](World& world) {
    Buffers data = buffers(world);
    std::vector<std::int32_t> longer(count() + 1);
    Communicator& comm = world.communicator();
    // One rank of the first node posts something else.
    Request first = world.rank() == 1 ? comm.allreduce(std::span(longer)) : data.post(comm);
    const std::string text = test::expect_error(Errc::mismatch, [&] {
      first.wait();
      comm.barrier().wait();
    });
    EXPECT_NE(text.find("posted different operations"), std::string::npos) << text;
  });
}

TEST_P(HierarchicalFaultsTest, EndsAtTheDeadlineWhenARankPostsNothing) {
  WorldOptions options = test::quick_options();
  options.deadline = std::chrono::milliseconds(300);
  world(options).run([](World& world) {
    Buffers data = buffers(world);
    std::vector<std::int32_t> never(count());
    Communicator& comm = world.communicator();
    try {
      // The last rank waits for a message that nobody sends.
      Request request =
          world.rank() == ranks - 1 ? comm.recv(std::span(never), 0, 7) : data.post(comm);
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
                         testing::Combine(testing::Values("Allreduce", "Reduce", "Broadcast",
                                                          "Allgather", "ReduceScatter", "Barrier",
                                                          "Alltoall"),
                                          testing::Values(std::size_t{3}, std::size_t{200'003})));

}  // namespace
}  // namespace rondo::transport::hierarchical_faults_test
