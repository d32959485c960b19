// What broadcast promises its callers.

#include <cstddef>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"

namespace rondo::transport::broadcast_test {
namespace {

using test::Backend;
using test::Memory;
using testing::Combine;
using testing::Values;

// Parameters: backend, memory, ranks, elements.
class BroadcastTest : public testing::TestWithParam<std::tuple<Backend, Memory, int, std::size_t>> {
 protected:
  test::World world() const { return {std::get<0>(GetParam()), ranks()}; }
  Memory memory() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }
  std::size_t elements() const { return std::get<3>(GetParam()); }
};

TEST_P(BroadcastTest, GivesEveryRankTheDataOfTheRoot) {
  world().run([&](World& world) {
    for (int root = 0; root < ranks(); ++root) {
      std::pmr::vector<std::int32_t> data(elements(), world.rank(),
                                          test::resource(world, memory()));

      world.communicator().broadcast(std::span(data), root).wait();

      ASSERT_TRUE(test::all_are(data, root));
    }
  });
}

TEST_P(BroadcastTest, LeavesTheRootFreeToWriteAfterwards) {
  world().run([&](World& world) {
    std::pmr::vector<std::int32_t> data(elements(), 0, test::resource(world, memory()));
    for (int i = 0; i < 20; ++i) {
      if (world.rank() == 0) std::fill(data.begin(), data.end(), i);

      world.communicator().broadcast(std::span(data), 0).wait();

      ASSERT_TRUE(test::all_are(data, i)) << "round " << i;
    }
  });
}

std::string name_of(const testing::TestParamInfo<BroadcastTest::ParamType>& info) {
  return std::string(test::name_of(std::get<1>(info.param))) +
         std::to_string(std::get<2>(info.param)) + "ranks" +
         std::to_string(std::get<3>(info.param)) + "elements";
}

INSTANTIATE_TEST_SUITE_P(Shm, BroadcastTest,
                         Combine(Values(Backend::shm),
                                 Values(Memory::arena, Memory::ordinary, Memory::mixed),
                                 Values(1, 2, 3, 4, 8),
                                 Values(0U, 1U, 5U, 1024U, 1025U, 10007U, 400'001U)),
                         name_of);

TEST(BroadcastArgumentTest, RefusesARootThatIsNoRank) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> data(1);

    EXPECT_THROW((void)comm.broadcast(std::span(data), 2), std::invalid_argument);
    EXPECT_THROW((void)comm.broadcast(std::span(data), -1), std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::transport::broadcast_test
