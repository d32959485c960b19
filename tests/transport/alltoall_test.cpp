// What alltoall promises its callers.

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/collective_test.hpp"

namespace rondo::transport::alltoall_test {
namespace {

using test::all_memories;
using test::Backend;
using test::Ints;
using test::rank_of;
using testing::Combine;
using testing::Values;

// The last parameter: elements of a part.
class AlltoallTest : public test::CollectiveTest {};

TEST_P(AlltoallTest, GivesEveryRankItsPart) {
  world().run([&](World& world) {
    const std::size_t me = rank_of(world);
    Ints in = ints(world, elements() * ranks());
    Ints out = ints(world, elements() * ranks());
    test::fill_with_values(in, me);
    const Ints before = in;

    world.communicator().alltoall(in, std::span(out)).wait();

    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t giver = i / elements();
      ASSERT_EQ(out[i], test::value(giver, me * elements() + i % elements())) << "element " << i;
    }
    EXPECT_TRUE(in == before) << "the input was changed";
  });
}

TEST_P(AlltoallTest, TwiceGivesEverythingBack) {
  world().run([&](World& world) {
    Ints in = ints(world, elements() * ranks());
    Ints out = ints(world, elements() * ranks());
    test::fill_with_values(in, rank_of(world));
    const Ints before = in;

    world.communicator().alltoall(in, std::span(out)).wait();
    world.communicator().alltoall(out, std::span(in)).wait();

    EXPECT_TRUE(in == before);
  });
}

TEST_P(AlltoallTest, ReportsALostPeerThroughTheRequest) {
  if (ranks() == 1) return;  // nobody to lose
  world().run_without(0, [&](World& world) {
    Ints in = ints(world, elements() * ranks());
    Ints out = ints(world, elements() * ranks());

    Request request = world.communicator().alltoall(in, std::span(out));

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, AlltoallTest,
                         Combine(Values(Backend::shm), all_memories, Values(1, 2, 3, 4, 8),
                                 Values(0U, 1U, 3U, 4U, 5U, 1025U, 10007U)),
                         test::name_of_collective_test);

INSTANTIATE_TEST_SUITE_P(ShmLarge, AlltoallTest,
                         Combine(Values(Backend::shm), all_memories, Values(3), Values(200'001U)),
                         test::name_of_collective_test);

TEST(AlltoallArgumentTest, RefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> three(3);
    std::vector<int> four(4);
    std::vector<int> five(5);

    EXPECT_THROW((void)comm.alltoall(three, std::span(three)), std::invalid_argument);
    EXPECT_THROW((void)comm.alltoall(four, std::span(four)), std::invalid_argument);
    EXPECT_THROW((void)comm.alltoall(four, std::span(five)), std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::transport::alltoall_test
