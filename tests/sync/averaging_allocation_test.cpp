// An iteration allocates nothing, whether averages are due in it or not.

#include <cstddef>

#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/iterate.hpp"

namespace rondo::sync::averaging_allocation_test {
namespace {

TEST(AveragingAllocationTest, AnIterationAllocatesNothing) {
  rondo::test::World{4}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    test::Arrays arrays(world, {5000, 20, 30'000}, 64);
    std::size_t rounds = 0;
    const auto scheme = make_hierarchical(arrays.replica(), make_sgd(arrays.parameters.size(), {}),
                                          {.period = 4,
                                           .levels = {{2, &pair}},
                                           .momentum = {.kind = MomentumKind::slowmo, .mu = 0.5F},
                                           .local_state = LocalState::average,
                                           .clip_norm = 1.0,
                                           .on_round = [&](const Round&) { ++rounds; }});
    const auto run = [&](int first, int last) {
      for (int step = first; step < last; ++step) {
        test::iterate(
            *scheme, arrays,
            {.index = step, .local_samples = 1, .global_samples = 4, .learning_rate = 0.1},
            [](std::size_t, float w) { return w + 1.0F; });
      }
    };
    run(0, 8);  // pools fill

    const std::size_t before = rondo::test::allocations_of_this_thread();
    run(8, 40);

    EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
    EXPECT_EQ(rounds, 10U);
  });
}

}  // namespace
}  // namespace rondo::sync::averaging_allocation_test
