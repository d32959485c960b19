// Ranks that leave in order: they are no loss to those who still work on what they took part in.

#include <chrono>
#include <cstdint>
#include <latch>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::leaving_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;
using testing::HasSubstr;

// Rank 2 has sent its part and leaves. Rank 1, which hears nothing of rank 0 for 11 s, must go on
// waiting; only when it has waited so long rank 0 takes part.
TEST(LeavingTest, ALateRootIsWaitedForThoughAnotherRankHasLeft) {
  std::latch long_silence(1);
  WorldOptions options = test::quick_options();
  options.stall_warning = 11s;
  options.on_stall = [&](const Stall& stall) {
    if (stall.rank == 1) long_silence.count_down();
  };
  test::World(Backend::shm_nodes, 3, options).run([&](World& world) {
    const std::vector<float> in(1000, 1.0F);
    std::vector<float> out(1000);
    world.communicator().barrier().wait();
    if (world.rank() == 0) long_silence.wait();

    const auto error = test::error_of(world.communicator().reduce(in, std::span(out), 0));

    EXPECT_FALSE(error) << error->what();
    if (error && world.rank() == 1) long_silence.count_down();
    if (world.rank() == 0) {
      EXPECT_TRUE(test::all_are(out, 3.0F));
    }
  });
}

class LeavingBeforeTest : public testing::TestWithParam<Backend> {};

TEST_P(LeavingBeforeTest, AnOperationThatTheLeaverNeverPostedFailsAndTheTextSaysBeforeWhich) {
  test::World(GetParam(), 4).run([](World& world) {
    std::vector<double> data(100'000);
    world.communicator().allreduce(std::span(data)).wait();
    world.communicator().barrier().wait();
    if (world.rank() == 3) return;

    const auto error = test::error_of(world.communicator().allreduce(std::span(data)));

    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::peer_lost);
    EXPECT_EQ(error->detail().rank, 3);
    EXPECT_THAT(error->what(), HasSubstr("rank 3 (pid "));
    EXPECT_THAT(error->what(),
                HasSubstr("left in order before it took part in allreduce #3 of 100000 f64 (sum)"));
  });
}

// Whoever has split off a group and left it is not missed in it, either.
TEST_P(LeavingBeforeTest, ALeaverIsNotMissedInTheGroupsThatItWasIn) {
  test::World(GetParam(), 4).run([](World& world) {
    std::vector<std::int32_t> data(50'000, 1);
    Communicator group = world.communicator().split(world.rank() % 2);
    Communicator all = world.communicator().split(0);
    group.allreduce(std::span(data)).wait();
    EXPECT_TRUE(test::all_are(data, 2));
    all.allreduce(std::span(data)).wait();
    EXPECT_TRUE(test::all_are(data, 8));
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, LeavingBeforeTest,
                         testing::Values(Backend::shm, Backend::shm_nodes, Backend::hierarchy),
                         [](const auto& test) { return std::string(test::name_of(test.param)); });

}  // namespace
}  // namespace rondo::transport::leaving_test
