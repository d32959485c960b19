// An iteration allocates nothing, whether it ends a window or not.

#include <cstddef>

#include <gtest/gtest.h>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/lazy_run.hpp"

namespace rondo::sync::lazy_allocation_test {
namespace {

using rondo::test::allocations_of_this_thread;

TEST(LazyAllocationTest, AnIterationAllocatesNothing) {
  rondo::test::World{2}.run([](transport::World& world) {
    test::LazyRun run(world, {5000, 20, 300, 100'000},
                      {.lazy_layers = 2, .probes = {{0, 4000}}, .max_interval = 5});
    for (int i = 0; i < 10; ++i) run.constant_step(1.0F);  // pools fill
    const std::size_t windows = run.windows.size();

    const std::size_t before = allocations_of_this_thread();
    for (int i = 10; i < 50; ++i) run.constant_step(1.0F);

    EXPECT_EQ(allocations_of_this_thread() - before, 0U);
    EXPECT_GE(run.windows.size(), windows + 8);
  });
}

}  // namespace
}  // namespace rondo::sync::lazy_allocation_test
