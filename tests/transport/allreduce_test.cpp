// One suite, run against every backend: what allreduce promises its callers.

#include <cstddef>
#include <memory_resource>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/world.hpp"

namespace rondo::transport::allreduce_test {
namespace {

using test::Backend;
using test::Memory;
using testing::Combine;
using testing::Values;

// Parameters: backend, memory, ranks, elements. The counts straddle the group sizes and the
// protocols: 1,024 floats are the largest small operation; 200,000 take several staging rounds.
class AllreduceTest : public testing::TestWithParam<std::tuple<Backend, Memory, int, std::size_t>> {
 protected:
  test::World world() const { return {std::get<0>(GetParam()), ranks()}; }
  Memory memory() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }
  std::size_t elements() const { return std::get<3>(GetParam()); }

  template <typename T>
  std::pmr::vector<T> buffer(World& world, T value) const {
    return std::pmr::vector<T>(elements(), value, test::resource(world, memory()));
  }
};

TEST_P(AllreduceTest, SumsOverAllRanks) {
  world().run([&](World& world) {
    auto data = buffer<std::int32_t>(world, world.rank() + 1);

    world.communicator().allreduce(std::span(data)).wait();

    EXPECT_TRUE(test::all_are(data, ranks() * (ranks() + 1) / 2));
  });
}

TEST_P(AllreduceTest, SumsEveryElementWithItsOwn) {
  world().run([&](World& world) {
    auto data = buffer<std::int64_t>(world, 0);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<std::int64_t>(i) + world.rank();

    world.communicator().allreduce(std::span(data)).wait();

    const int of_ranks = ranks() * (ranks() - 1) / 2;
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], static_cast<std::int64_t>(i) * ranks() + of_ranks) << "element " << i;
    }
  });
}

TEST_P(AllreduceTest, GivesEveryRankTheSameBits) {
  world().run([&](World& world) {
    auto data = buffer<float>(world, 0.1F * static_cast<float>(world.rank() + 1));
    auto all = std::vector<float>(elements() * static_cast<std::size_t>(ranks()));

    world.communicator().allreduce(std::span(data)).wait();
    world.communicator().allgather(data, std::span(all)).wait();

    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], data[i % data.size()]) << "element " << i;
    }
  });
}

TEST_P(AllreduceTest, KeepsPendingOperationsApart) {
  world().run([&](World& world) {
    auto ones = buffer<std::int32_t>(world, 1);
    auto twos = buffer<std::int32_t>(world, 2);

    Request first = world.communicator().allreduce(std::span(ones));
    Request second = world.communicator().allreduce(std::span(twos));
    second.wait();
    first.wait();

    EXPECT_TRUE(test::all_are(ones, ranks()));
    EXPECT_TRUE(test::all_are(twos, 2 * ranks()));
  });
}

TEST_P(AllreduceTest, LeavesNeighbouringMemoryAlone) {
  world().run([&](World& world) {
    constexpr std::size_t margin = 3;
    std::pmr::vector<std::int32_t> data(elements() + 2 * margin, 7,
                                        test::resource(world, memory()));

    const std::span inner = std::span(data).subspan(margin, elements());
    world.communicator().allreduce(inner, ReduceOp::max).wait();

    EXPECT_TRUE(test::all_are(data, 7));
  });
}

TEST_P(AllreduceTest, RepeatsManyTimesWithOneBuffer) {
  world().run([&](World& world) {
    auto data = buffer<std::int32_t>(world, 0);
    constexpr int repetitions = 40;  // more than there are slots
    for (int i = 0; i < repetitions; ++i) {
      std::fill(data.begin(), data.end(), i);

      world.communicator().allreduce(std::span(data)).wait();

      ASSERT_TRUE(test::all_are(data, i * ranks())) << "repetition " << i;
    }
  });
}

TEST_P(AllreduceTest, ReportsALostPeerThroughTheRequest) {
  if (ranks() == 1) return;  // nobody to lose
  world().run_without(ranks() - 1, [&](World& world) {
    auto data = buffer<std::int32_t>(world, 1);

    Request request = world.communicator().allreduce(std::span(data));

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

std::string name_of(const testing::TestParamInfo<AllreduceTest::ParamType>& info) {
  return std::string(test::name_of(std::get<1>(info.param))) +
         std::to_string(std::get<2>(info.param)) + "ranks" +
         std::to_string(std::get<3>(info.param)) + "elements";
}

INSTANTIATE_TEST_SUITE_P(Shm, AllreduceTest,
                         Combine(Values(Backend::shm),
                                 Values(Memory::arena, Memory::ordinary, Memory::mixed),
                                 Values(1, 2, 3, 4, 8),
                                 Values(0U, 1U, 3U, 4U, 5U, 1024U, 1025U, 10007U)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(ShmLarge, AllreduceTest,
                         Combine(Values(Backend::shm),
                                 Values(Memory::arena, Memory::ordinary, Memory::mixed),
                                 Values(2, 3), Values(600'001U)),
                         name_of);

}  // namespace
}  // namespace rondo::transport::allreduce_test
