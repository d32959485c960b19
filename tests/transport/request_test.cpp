// The handle to a posted operation.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"

namespace rondo::transport::request_test {
namespace {

TEST(RequestTest, IsCompleteWhenEmpty) {
  Request request;

  EXPECT_TRUE(request.test());
  request.wait();
  EXPECT_FALSE(request.status());
}

TEST(RequestTest, MayBeWaitedForTwice) {
  test::World(2).run([](Communicator& comm) {
    Request request = comm.barrier();
    request.wait();
    request.wait();
    EXPECT_TRUE(request.test());
  });
}

TEST(RequestTest, WaitsWhenItIsDestroyed) {
  test::World(2).run([](World& world) {
    std::pmr::vector<int> data(100'000, 1, &world.arena());
    {
      const Request request = world.communicator().allreduce(std::span(data));
    }
    EXPECT_TRUE(test::all_are(data, 2));
  });
}

TEST(RequestTest, WaitsForTheOldOperationWhenItIsAssigned) {
  test::World(2).run([](World& world) {
    std::pmr::vector<int> data(100'000, 1, &world.arena());
    Request request = world.communicator().allreduce(std::span(data));
    request = world.communicator().barrier();
    EXPECT_TRUE(test::all_are(data, 2));
    Request moved = std::move(request);
    moved.wait();
  });
}

TEST(RequestTest, KeepsTheCommunicatorAlive) {
  test::World(2).run([](World& world) {
    std::vector<int> data(3, 1);
    Request request;
    {
      Communicator group = world.communicator().split(0);
      request = group.allreduce(std::span(data));
    }
    request.wait();
    EXPECT_TRUE(test::all_are(data, 2));
  });
}

TEST(RequestTest, AllocatesNothingOnceThePoolIsWarm) {
  test::World(2).run([](World& world) {
    std::pmr::vector<int> shared(20'000, 1, &world.arena());
    std::vector<int> ordinary(20'000, 1);
    std::vector<int> ordinary_too(20'000);
    const std::vector<std::size_t> counts{5'000, 15'000};
    std::vector<int> part(counts[static_cast<std::size_t>(world.rank())]);
    const auto round = [&] {
      Request a = world.communicator().allreduce(std::span(shared), ReduceOp::max);
      Request b = world.communicator().allreduce(std::span(ordinary), ReduceOp::max);
      Request c =
          world.communicator().reduce_scatter(ordinary, std::span(part), ReduceOp::max, counts);
      Request d = world.communicator().alltoall(std::span(shared), std::span(ordinary_too));
      Request e = world.communicator().reduce(ordinary, std::span(ordinary), 1, ReduceOp::max);
      Request f = world.communicator().barrier();
      f.wait();
    };
    round();

    const std::size_t before = test::allocations_of_this_thread();
    for (int i = 0; i < 50; ++i) round();

    EXPECT_EQ(test::allocations_of_this_thread(), before);
  });
}

}  // namespace
}  // namespace rondo::transport::request_test
