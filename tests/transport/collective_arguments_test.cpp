// The arguments that collectives refuse at the call: sizes, counts and roots that do not fit,
// overlapping buffers, and reductions of bits for numbers that have none.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::transport::collective_arguments_test {
namespace {

TEST(CollectiveArgumentsTest, AllgatherRefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> in(2);
    std::vector<int> out(5);
    const std::vector<std::size_t> three{1, 1, 1};
    const std::vector<std::size_t> other{3, 2};

    EXPECT_THROW((void)comm.allgather(in, std::span(out)), std::invalid_argument);
    EXPECT_THROW((void)comm.allgather(in, std::span(out), three), std::invalid_argument);
    if (comm.rank() == 0) {
      EXPECT_THROW((void)comm.allgather(in, std::span(out), other), std::invalid_argument);
    }
  });
}

TEST(CollectiveArgumentsTest, AllgatherRefusesAShareThatOverlapsTheResultElsewhere) {
  test::World(2).run([](Communicator& comm) {
    std::vector<std::int32_t> out(8);
    const std::span<std::int32_t> all(out);
    const auto mine = static_cast<std::size_t>(comm.rank());

    // The other rank's share, between the two, and with a count for each rank.
    EXPECT_THROW((void)comm.allgather(all.subspan(4 * (1 - mine), 4), all), std::invalid_argument);
    EXPECT_THROW((void)comm.allgather(all.subspan(2, 4), all), std::invalid_argument);
    const std::vector<std::size_t> counts{3, 5};
    EXPECT_THROW((void)comm.allgather(all.subspan(1, counts[mine]), all, counts),
                 std::invalid_argument);
  });
}

TEST(CollectiveArgumentsTest, AlltoallRefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> three(3);
    std::vector<int> four(4);
    std::vector<int> five(5);

    EXPECT_THROW((void)comm.alltoall(three, std::span(three)), std::invalid_argument);
    EXPECT_THROW((void)comm.alltoall(four, std::span(four)), std::invalid_argument);
    EXPECT_THROW((void)comm.alltoall(four, std::span(five)), std::invalid_argument);
  });
}

TEST(CollectiveArgumentsTest, BroadcastRefusesARootThatIsNoRank) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> data(1);

    EXPECT_THROW((void)comm.broadcast(std::span(data), 2), std::invalid_argument);
    EXPECT_THROW((void)comm.broadcast(std::span(data), -1), std::invalid_argument);
  });
}

TEST(CollectiveArgumentsTest, ReductionsRefuseWhatDoesNotFit) {
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

TEST(CollectiveArgumentsTest, ReduceScatterRefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> in(4);
    std::vector<int> out(3);
    const std::vector<std::size_t> three{1, 1, 2};
    const std::vector<std::size_t> other{2, 2};

    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(out)), std::invalid_argument);
    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(out), ReduceOp::sum, three),
                 std::invalid_argument);
    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(out), ReduceOp::sum, other),
                 std::invalid_argument);
    EXPECT_THROW((void)comm.reduce_scatter(in, std::span(in).subspan(1, 2)), std::invalid_argument);
  });
}

TEST(ReductionOpsTest, BitsAreForIntegers) {
  test::World(1).run([](World& world) {
    std::vector<float> data(4);
    for (const ReduceOp op : {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor}) {
      EXPECT_THROW((void)world.communicator().allreduce(std::span(data), op),
                   std::invalid_argument);
      EXPECT_THROW((void)world.communicator().reduce(data, std::span(data), 0, op),
                   std::invalid_argument);
      EXPECT_THROW((void)world.communicator().reduce_scatter(data, std::span(data), op),
                   std::invalid_argument);
    }
  });
}

}  // namespace
}  // namespace rondo::transport::collective_arguments_test
