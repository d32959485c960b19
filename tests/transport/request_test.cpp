// The handles of operations: a Request to a posted one, a Plan to one that is described once and
// started many times.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

#include "support/allocations.hpp"
#include "support/backends.hpp"
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

TEST(RequestTest, SaysWithoutProgressWhetherItHasFinished) {
  EXPECT_TRUE(Request().finished());
  test::World(1).run([](World& world) {
    Communicator& comm = world.communicator();
    int number = 0;
    Request received = comm.recv(std::span(&number, 1), 0);
    const int sent = 7;
    comm.send(std::span(&sent, 1), 0).wait();
    world.progress();
    EXPECT_TRUE(received.finished());
    EXPECT_EQ(number, 7);
  });
  test::World(2).run([](World& world) {
    std::vector<int> data(1, 1);
    Request first = world.communicator().allreduce(std::span(data));
    EXPECT_FALSE(first.finished());  // posting alone does not look for what others have posted
    while (!first.finished()) world.progress();
    EXPECT_EQ(data[0], 2);
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

// Nor does the arena, in which the scratch of rings and trees lies.
void allocates_nothing_between_nodes(int ranks, const FabricOptions& fabric) {
  WorldOptions options = test::quick_options();
  options.fabric = fabric;
  test::World(ranks, options).run([](World& world) {
    std::vector<int> data(100'000, 1);
    std::vector<int> out(100'000);
    const auto round = [&] {
      world.communicator().allreduce(std::span(data), ReduceOp::max).wait();
      world.communicator().reduce(data, std::span(out), 0, ReduceOp::max).wait();
      world.communicator().scan(data, std::span(out), ReduceOp::max).wait();
    };
    round();

    const std::size_t before = test::allocations_of_this_thread();
    const std::size_t used = world.arena().used_bytes();
    for (int i = 0; i < 10; ++i) round();

    EXPECT_EQ(test::allocations_of_this_thread(), before);
    EXPECT_EQ(world.arena().used_bytes(), used);
  });
}

TEST(RequestTest, AllocatesNothingBetweenNodesOnceScratchIsThere) {
  allocates_nothing_between_nodes(2, test::fabric_of(test::Backend::shm_nodes, 2));
}

TEST(RequestTest, HalvingAllocatesNothingOnceScratchIsThere) {
  allocates_nothing_between_nodes(2, {.name = "shm", .fake_nodes = 2, .allreduce = "rh:0-max"});
}

class PlanTest : public testing::TestWithParam<test::Backend> {
 protected:
  test::World world(int ranks) const { return {GetParam(), ranks}; }
};

TEST_P(PlanTest, AllreducesAgainAndAgain) {
  world(3).run([](World& world) {
    std::pmr::vector<std::int32_t> data(5000, &world.arena());
    Plan plan = world.communicator().plan_allreduce(std::span(data));
    for (int round = 0; round < 30; ++round) {
      std::fill(data.begin(), data.end(), round);

      plan.start().wait();

      ASSERT_TRUE(test::all_are(data, 3 * round));
    }
  });
}

TEST_P(PlanTest, MatchesTheOperationItself) {
  world(2).run([](World& world) {
    std::vector<float> data(10, world.rank() == 0 ? 4.0F : 0.0F);
    Plan plan = world.communicator().plan_broadcast(std::span(data), 0);

    Request request =
        world.rank() == 0 ? plan.start() : world.communicator().broadcast(std::span(data), 0);
    request.wait();

    EXPECT_TRUE(test::all_are(data, 4.0F));
  });
}

TEST_P(PlanTest, ExchangesHalosAndGathersColumns) {
  world(2).run([](World& world) {
    Communicator& comm = world.communicator();
    const int other = 1 - world.rank();
    std::vector<std::int32_t> mine(12, world.rank());
    std::vector<std::int32_t> theirs(6, -1);
    std::vector<std::int32_t> all(24, -1);
    std::vector<std::int32_t> own(12, -1);
    const std::vector<Neighbour> neighbours = {
        Neighbour(other, Strided<const std::int32_t>(mine.data(), 3, 2, 4),
                  Strided<std::int32_t>(std::span(theirs)))};
    Plan halo = comm.plan_sendrecv(neighbours);
    Plan gather = comm.plan_allgather(Strided<const std::int32_t>(mine.data(), 3, 4, 4),
                                      Strided<std::int32_t>(all.data(), 3, 8, 8));
    Plan scatter = comm.plan_reduce_scatter(Strided<const std::int32_t>(all.data(), 3, 8, 8),
                                            Strided<std::int32_t>(own.data(), 3, 4, 4));
    for (int round = 0; round < 5; ++round) {
      halo.start().wait();
      gather.start().wait();
      scatter.start().wait();
    }

    EXPECT_TRUE(test::all_are(theirs, other));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i % 8 < 4 ? 0 : 1);
    EXPECT_TRUE(test::all_are(own, 2 * world.rank()));
  });
}

// Such a plan was started as an empty message, and nothing was reduced.
TEST_P(PlanTest, ReducesWhenMadeAfterAMessage) {
  world(2).run([](World& world) {
    Communicator& comm = world.communicator();
    std::vector<std::int32_t> data(3, 1);
    comm.recv(std::span(data), 1 - world.rank()).cancel();
    Plan plan = comm.plan_allreduce(std::span(data));

    plan.start().wait();

    EXPECT_TRUE(test::all_are(data, 2));
  });
}

TEST_P(PlanTest, MayOutliveItsCommunicator) {
  world(2).run([](World& world) {
    std::vector<std::int32_t> data(3, 1);
    Plan plan = [&] {
      Communicator group = world.communicator().split(0);
      return group.plan_allreduce(std::span(data));
    }();

    plan.start().wait();

    EXPECT_TRUE(test::all_are(data, 2));
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, PlanTest,
                         testing::Values(test::Backend::shm, test::Backend::shm_nodes,
                                         test::Backend::hierarchy),
                         [](const auto& test) { return std::string(test::name_of(test.param)); });

TEST(PlanArgumentsTest, AreCheckedWhenItIsMade) {
  test::World(2).run([](World& world) {
    std::vector<float> data(4);
    EXPECT_THROW(static_cast<void>(world.communicator().plan_broadcast(std::span(data), 5)),
                 std::invalid_argument);
  });
}

// The first starts make records and scratch; the others find them.
TEST(PlanAllocationsTest, ThereAreNoneInSteadyState) {
  test::World(1).run([](World& world) {
    std::pmr::vector<float> data(5000, &world.arena());
    const std::vector<Neighbour> neighbours = {
        Neighbour(0, Strided<const float>(data.data(), 10, 2, 4),
                  Strided<float>(data.data() + 100, 10, 2, 4))};
    Plan reduce = world.communicator().plan_allreduce(std::span(data));
    Plan halo = world.communicator().plan_sendrecv(neighbours);
    const auto round = [&] {
      reduce.start().wait();
      halo.start().wait();
    };
    for (int i = 0; i < 3; ++i) round();

    const auto before = test::allocations_of_this_thread();
    for (int i = 0; i < 20; ++i) round();

    EXPECT_EQ(test::allocations_of_this_thread() - before, 0U);
  });
}

}  // namespace
}  // namespace rondo::transport::request_test
