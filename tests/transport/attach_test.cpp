// Processes that join the job's World again and again.

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/processes.hpp"

namespace rondo::transport::attach_test {
namespace {

// Some leave without a word to the others: who is early then meets ranks that still meet.
void attach_200_times() {
  for (int i = 0; i < 200; ++i) {
    World world = World::attach(rondo::test::quick_options());
    if (i % 4 != 0) continue;
    std::vector<int> sum{world.rank()};
    world.communicator().allreduce(std::span(sum)).wait();
    ASSERT_EQ(sum[0], 0 + 1 + 2 + 3) << "World " << i;
  }
}

TEST(AttachTest, JoinsTheSameJob200TimesOverSocketsOfTheNode) {
  rondo::test::expect_success(4, rondo::test::meet_locally(), attach_200_times);
}

TEST(AttachTest, JoinsTheSameJob200TimesOverTheStore) {
  rondo::test::expect_success(4, rondo::test::meet_over_tcp(), attach_200_times);
}

// The store lives as long as the World.
TEST(AttachTest, JoinsTheSameJobOfSeveralNodes20Times) {
  rondo::test::expect_success(4, rondo::test::meet_over_tcp(), [] {
    WorldOptions options = rondo::test::quick_options();
    options.fabric = rondo::test::fabric_of(rondo::test::Backend::hierarchy, 4);
    for (int i = 0; i < 20; ++i) {
      World world = World::attach(options);
      std::vector<int> sum{world.rank()};
      world.communicator().allreduce(std::span(sum)).wait();
      ASSERT_EQ(sum[0], 0 + 1 + 2 + 3) << "World " << i;
    }
  });
}

}  // namespace
}  // namespace rondo::transport::attach_test
