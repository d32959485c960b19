// What reduce, and allreduce out of place, promise their callers.

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/collective_test.hpp"

namespace rondo::transport::reduce_test {
namespace {

using test::all_memories;
using test::Backend;
using test::Ints;
using test::rank_of;
using test::sum_of_values;
using testing::Combine;
using testing::Values;

// The last parameter: elements of a buffer.
class ReduceTest : public test::CollectiveTest {
 protected:
  void expect_sums(const Ints& data) const {
    ASSERT_EQ(data.size(), elements());
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], sum_of_values(ranks(), i)) << "element " << i;
    }
  }
};

TEST_P(ReduceTest, GivesEveryRootTheSums) {
  world().run([&](World& world) {
    const std::size_t me = rank_of(world);
    Ints in = ints(world, elements());
    test::fill_with_values(in, me);
    const Ints before = in;
    for (std::size_t root = 0; root < ranks(); ++root) {
      Ints out = ints(world, me == root ? elements() : 0);

      world.communicator().reduce(in, std::span(out), static_cast<int>(root)).wait();

      if (me == root) expect_sums(out);
      EXPECT_TRUE(in == before) << "the input was changed";
    }
  });
}

TEST_P(ReduceTest, ReducesInPlaceAtTheRoot) {
  world().run([&](World& world) {
    const std::size_t root = ranks() - 1;
    const std::size_t me = rank_of(world);
    Ints data = ints(world, elements());
    test::fill_with_values(data, me);
    const Ints before = data;

    world.communicator().reduce(data, std::span(data), static_cast<int>(root)).wait();

    if (me == root) {
      expect_sums(data);
    } else {
      EXPECT_TRUE(data == before);
    }
  });
}

TEST_P(ReduceTest, LeavesOutputsOfOthersAlone) {
  world().run([&](World& world) {
    Ints in = ints(world, elements(), 7);
    Ints out = ints(world, elements(), -1);

    world.communicator().reduce(in, std::span(out), 0, ReduceOp::max).wait();

    EXPECT_TRUE(test::all_are(out, world.rank() == 0 ? 7 : -1));
  });
}

TEST_P(ReduceTest, ReachesAllRanksOutOfPlace) {
  world().run([&](World& world) {
    Ints in = ints(world, elements());
    Ints out = ints(world, elements());
    test::fill_with_values(in, rank_of(world));
    const Ints before = in;

    world.communicator().allreduce(in, std::span(out)).wait();

    expect_sums(out);
    EXPECT_TRUE(in == before) << "the input was changed";
  });
}

TEST_P(ReduceTest, MixesRanksInPlaceAndOutOfPlace) {
  world().run([&](World& world) {
    Ints in = ints(world, elements());
    Ints out = ints(world, elements());
    test::fill_with_values(in, rank_of(world));
    Ints& result = world.rank() % 2 == 0 ? in : out;

    world.communicator().allreduce(in, std::span(result)).wait();

    expect_sums(result);
  });
}

// Inputs in arenas, outputs not: what peers store into must be within their reach as well.
TEST_P(ReduceTest, TakesOutputsInOtherMemoryThanInputs) {
  world().run([&](World& world) {
    Ints in = ints(world, elements());
    Ints out(elements());
    test::fill_with_values(in, rank_of(world));

    world.communicator().allreduce(in, std::span(out)).wait();
    expect_sums(out);

    std::fill(out.begin(), out.end(), 0);
    world.communicator().reduce(in, std::span(out), 0).wait();
    if (world.rank() == 0) expect_sums(out);
  });
}

TEST_P(ReduceTest, ReportsALostPeerThroughTheRequest) {
  if (ranks() == 1) return;  // nobody to lose
  world().run_without(0, [&](World& world) {
    Ints data = ints(world, elements());

    Request request = world.communicator().reduce(data, std::span(data), 0);

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, ReduceTest,
                         Combine(Values(Backend::shm), all_memories, Values(1, 2, 3, 4, 8),
                                 Values(0U, 1U, 3U, 4U, 5U, 1024U, 1025U, 10007U)),
                         test::name_of_collective_test);

INSTANTIATE_TEST_SUITE_P(ShmLarge, ReduceTest,
                         Combine(Values(Backend::shm), all_memories, Values(3), Values(600'001U)),
                         test::name_of_collective_test);

TEST(ReduceArgumentTest, RefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> in(4);
    std::vector<int> out(3);

    EXPECT_THROW((void)comm.allreduce(in, std::span(out)), std::invalid_argument);
    EXPECT_THROW((void)comm.reduce(in, std::span(in), 2), std::invalid_argument);
    EXPECT_THROW((void)comm.reduce(in, std::span(in), -1), std::invalid_argument);
    EXPECT_THROW((void)comm.reduce(in, std::span(out), comm.rank()), std::invalid_argument);
    EXPECT_THROW((void)comm.allreduce(std::span(in).first(3), std::span(in).last(3)),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::transport::reduce_test
