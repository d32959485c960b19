// An iteration allocates nothing, whether the token comes or not.

#include <cstddef>

#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_allocation_test {
namespace {

using rondo::test::allocations_of_this_thread;
using rondo::test::Backend;

void expect_no_allocations(Backend backend) {
  rondo::test::World{backend, 2}.run([](transport::World& world) {
    test::CyclicWorker worker(world, {.delay = Delay::fixed});
    worker.pushes.reserve(100);
    worker.compute_minibatches(5);  // pools fill

    const std::size_t before = allocations_of_this_thread();
    worker.compute_minibatches(40);

    EXPECT_EQ(allocations_of_this_thread() - before, 0U);
    worker.scheme->flush();
  });
}

TEST(CyclicAllocationTest, AnIterationInANodeAllocatesNothing) {
  expect_no_allocations(Backend::shm);
}

TEST(CyclicAllocationTest, AnIterationBetweenNodesAllocatesNothing) {
  expect_no_allocations(Backend::shm_nodes);
}

}  // namespace
}  // namespace rondo::sync::cyclic_allocation_test
