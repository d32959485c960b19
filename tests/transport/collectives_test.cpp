// Collectives of a node: the same buffers again and again, and a peer that is lost.
// conformance_test.cpp has each call alone, and all of them outstanding together.

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/call_buffers.hpp"
#include "support/world.hpp"

namespace rondo::transport::collectives_test {
namespace {

using test::Memory;
using Buffers = test::CallBuffers<>;

// Parameters: call, memory, ranks, elements (of a share, or of the whole where there are none).
class CollectivesTogetherTest
    : public testing::TestWithParam<std::tuple<test::Call, Memory, int, std::size_t>> {
 protected:
  [[nodiscard]] static test::World world() { return test::World(std::get<2>(GetParam())); }
  [[nodiscard]] static Buffers buffers(World& world, int root) {
    return {world.communicator(), test::resource(world, std::get<1>(GetParam())),
            std::get<0>(GetParam()), std::get<3>(GetParam()), root};
  }
};

// More often than there are slots, each time with other values; every rank is the root in turn.
TEST_P(CollectivesTogetherTest, RepeatsManyTimesWithTheSameBuffers) {
  world().run([](World& world) {
    std::vector<std::unique_ptr<Buffers>> by_root;
    for (int root = 0; root < world.size(); ++root) {
      by_root.emplace_back(new Buffers(buffers(world, root)));
    }
    for (std::size_t round = 0; round < 20; ++round) {
      Buffers& data = *by_root[round % by_root.size()];
      data.fill(round);

      data.post(world.communicator()).wait();

      EXPECT_EQ(data.fault(), "");
    }
  });
}

TEST_P(CollectivesTogetherTest, ReportsALostPeerThroughTheRequest) {
  world().run_without(0, [](World& world) {
    Buffers data = buffers(world, 0);
    data.fill(0);

    Request request = data.post(world.communicator());

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

std::string name_of(const testing::TestParamInfo<CollectivesTogetherTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + test::name_of(std::get<1>(info.param)) +
         std::to_string(std::get<2>(info.param)) + "ranks" +
         std::to_string(std::get<3>(info.param)) + "elements";
}

INSTANTIATE_TEST_SUITE_P(
    Shm, CollectivesTogetherTest,
    testing::Combine(testing::ValuesIn(test::all_calls()),
                     testing::Values(Memory::arena, Memory::ordinary, Memory::mixed),
                     testing::Values(2, 5), testing::Values(0U, 5U, 1024U, 1025U)),
    name_of);

}  // namespace
}  // namespace rondo::transport::collectives_test
