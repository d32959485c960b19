// A rank that posts early computes on until its peers arrive; one that blocks does not. The order
// of events is scripted: no clock is read.

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

#include "support/world.hpp"

namespace rondo::transport::early_rank_test {
namespace {

using test::Memory;

constexpr int slices_before_the_peer = 5;

// What the two ranks tell each other beside the transport.
struct Script {
  std::atomic<int> slices{0};        // of computation that the early rank has done
  std::atomic<bool> posted{false};   // by the early rank
  std::atomic<int> slices_seen{-1};  // by the late rank when it posted
};

void compute_a_slice(Script& script) { script.slices += 1; }

// Posts once `ready`, and waits for the result.
template <typename Ready>
void be_late(World& world, Script& script, std::span<int> data, Ready ready) {
  while (!ready()) std::this_thread::yield();
  script.slices_seen = script.slices.load();
  world.communicator().allreduce(data).wait();
}

// Parameters: memory, elements.
class EarlyRankTest : public testing::TestWithParam<std::tuple<Memory, std::size_t>> {
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
        compute_a_slice(script);
        world.progress(std::chrono::microseconds(10));
      }
      EXPECT_EQ(world.counters().waiting.count(), 0);
    } else {
      be_late(world, script, data, [&] { return script.slices >= slices_before_the_peer; });
    }
    EXPECT_TRUE(test::all_are(data, 2));
  });
  EXPECT_GE(script.slices_seen, slices_before_the_peer);
}

TEST_P(EarlyRankTest, ComputesNothingWhileItBlocks) {
  Script script;
  test::World(2).run([&](World& world) {
    auto data = ones(world);
    if (world.rank() == 0) {
      Request sum = world.communicator().allreduce(std::span(data));
      script.posted = true;
      sum.wait();
      for (int slice = 0; slice < slices_before_the_peer; ++slice) compute_a_slice(script);
    } else {
      be_late(world, script, data, [&] { return script.posted.load(); });
    }
    EXPECT_TRUE(test::all_are(data, 2));
  });
  EXPECT_EQ(script.slices_seen, 0);
}

std::string name_of(const testing::TestParamInfo<EarlyRankTest::ParamType>& info) {
  return test::name_of(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param)) +
         "elements";
}

INSTANTIATE_TEST_SUITE_P(Shm, EarlyRankTest,
                         testing::Combine(testing::Values(Memory::arena, Memory::ordinary),
                                          testing::Values(3U, 300'000U)),
                         name_of);

}  // namespace
}  // namespace rondo::transport::early_rank_test
