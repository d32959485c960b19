// Any number of operations may be outstanding, and waited for in any order. A rank that posts early
// computes on until its peers arrive; one that blocks does not: there the order of events is
// scripted, and no clock is read.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

#include "support/processes.hpp"
#include "support/world.hpp"

namespace rondo::transport::outstanding_test {
namespace {

constexpr std::size_t slots = 16;
constexpr std::size_t many = 3 * slots;

// Small, direct and staged operations by turns; operation i adds i on every rank.
struct Batch {
  explicit Batch(World& world) {
    constexpr std::array<std::size_t, 3> sizes{3, 2'000, 90'000};
    for (std::size_t i = 0; i < many; ++i) {
      auto* memory =
          test::resource(world, i % 4 == 3 ? test::Memory::ordinary : test::Memory::arena);
      data.emplace_back(sizes[i % sizes.size()], static_cast<int>(i), memory);
    }
  }

  void post(Communicator& comm) {
    for (auto& values : data) requests.push_back(comm.allreduce(std::span(values)));
  }

  void wait_in_reverse() {
    while (!requests.empty()) {
      requests.back().wait();
      requests.pop_back();
    }
  }

  void expect_sums(int ranks) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_TRUE(test::all_are(data[i], static_cast<int>(i) * ranks)) << "operation " << i;
    }
  }

  std::vector<std::pmr::vector<int>> data;
  std::vector<Request> requests;
};

void post_all_and_wait_in_reverse(World& world) {
  Batch batch(world);

  batch.post(world.communicator());
  batch.wait_in_reverse();

  batch.expect_sums(world.size());
}

// The last rank posts one by one, waiting for each: it is always the last to arrive.
void one_rank_is_late(World& world) {
  Batch batch(world);
  if (world.rank() == world.size() - 1) {
    for (auto& values : batch.data) world.communicator().allreduce(std::span(values)).wait();
  } else {
    batch.post(world.communicator());
    batch.wait_in_reverse();
  }
  batch.expect_sums(world.size());
}

void two_communicators_in_opposite_order(World& world) {
  Communicator first = world.communicator().split(0);
  Communicator second = world.communicator().split(0);
  Batch one(world);
  Batch two(world);
  if (world.rank() % 2 == 0) {
    one.post(first);
    two.post(second);
    one.wait_in_reverse();
    two.wait_in_reverse();
  } else {
    two.post(second);
    one.post(first);
    two.wait_in_reverse();
    one.wait_in_reverse();
  }
  one.expect_sums(world.size());
  two.expect_sums(world.size());
}

class OutstandingTest : public testing::TestWithParam<int> {};

TEST_P(OutstandingTest, WaitsInReverse) {
  test::World(GetParam()).run([](World& world) { post_all_and_wait_in_reverse(world); });
}

TEST_P(OutstandingTest, WaitsInReverseWhileOneRankIsLate) {
  test::World(GetParam()).run([](World& world) { one_rank_is_late(world); });
}

TEST_P(OutstandingTest, PostsOnTwoCommunicatorsInOppositeOrder) {
  test::World(GetParam()).run([](World& world) { two_communicators_in_opposite_order(world); });
}

TEST_P(OutstandingTest, DoesAllThatWithProcessesAsRanks) {
  test::expect_success(GetParam(), [](World& world) {
    post_all_and_wait_in_reverse(world);
    one_rank_is_late(world);
    two_communicators_in_opposite_order(world);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, OutstandingTest, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

TEST(OutstandingWorkTest, ProgressesWhatNobodyWaitsFor) {
  test::World(2).run([](World& world) {
    std::pmr::vector<int> data(10'000, 1, &world.arena());
    Request request = world.communicator().allreduce(std::span(data));
    if (world.rank() == 1) {
      request.wait();
    } else {
      while (!request.test()) world.progress(std::chrono::microseconds(10));
    }
    EXPECT_TRUE(test::all_are(data, 2));
  });
}

constexpr int slices_before_the_peer = 5;

// The facts that the two ranks tell each other beside the transport.
struct Script {
  std::atomic<int> slices{0};        // of computation that the early rank has done
  std::atomic<int> slices_seen{-1};  // by the late rank when it posted
};

// Parameters: memory, elements.
class EarlyRankTest : public testing::TestWithParam<std::tuple<test::Memory, std::size_t>> {
 protected:
  std::pmr::vector<int> ones(World& world) const {
    return {std::get<1>(GetParam()), 1, test::resource(world, std::get<0>(GetParam()))};
  }
};

TEST_P(EarlyRankTest, ComputesUntilALatePeerArrives) {
  Script script;
  test::World(2).run([&](World& world) {
    auto data = ones(world);
    if (world.rank() == 0) {
      Request sum = world.communicator().allreduce(std::span(data));
      while (!sum.test()) {
        script.slices += 1;
        world.progress(std::chrono::microseconds(10));
      }
      EXPECT_EQ(world.counters().waiting.count(), 0);
    } else {
      while (script.slices < slices_before_the_peer) std::this_thread::yield();
      script.slices_seen = script.slices.load();
      world.communicator().allreduce(std::span(data)).wait();
    }
    EXPECT_TRUE(test::all_are(data, 2));
  });
  EXPECT_GE(script.slices_seen, slices_before_the_peer);
}

// The ranks' one thread moves each of them as far as it goes. An allreduce of this size takes a
// hundred passes.
TEST(ProgressTest, MovesAllThatCanBeMovedWhenItsTimeIsForEver) {
  std::vector<World> worlds = test::World(2).open();
  std::vector<std::pmr::vector<float>> data;
  std::vector<Request> requests;
  for (World& world : worlds) {
    auto& mine = data.emplace_back(2'000'000, 1.0F, &world.arena());
    requests.push_back(world.communicator().allreduce(std::span(mine)));
  }
  int rounds = 0;
  for (; !requests[0].test() || !requests[1].test(); ++rounds) {
    for (World& world : worlds) world.progress(std::chrono::nanoseconds::max());
  }

  EXPECT_LT(rounds, 10);
  for (const auto& sums : data) EXPECT_TRUE(test::all_are(sums, 2.0F));
}

std::string name_of_case(const testing::TestParamInfo<EarlyRankTest::ParamType>& info) {
  return test::name_of(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param)) +
         "elements";
}

INSTANTIATE_TEST_SUITE_P(Shm, EarlyRankTest,
                         testing::Combine(testing::Values(test::Memory::arena,
                                                          test::Memory::ordinary),
                                          testing::Values(3U, 300'000U)),
                         name_of_case);

}  // namespace
}  // namespace rondo::transport::outstanding_test
