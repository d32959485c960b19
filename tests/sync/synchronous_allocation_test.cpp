// An iteration allocates nothing, neither in the scheme nor in the transport below it.

#include <cstddef>

#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::synchronous_allocation_test {
namespace {

using rondo::test::allocations_of_this_thread;

void iterate(UpdateScheme& scheme, std::size_t layers, int index) {
  scheme.begin({.index = index, .local_samples = 1, .global_samples = 2, .learning_rate = 0.1});
  for (std::size_t layer = 0; layer < layers; ++layer) scheme.make_ready(layer);
  for (std::size_t layer = layers; layer-- > 0;) scheme.gradients_final(layer);
  scheme.finish();
}

TEST(SynchronousAllocationTest, AnIterationAllocatesNothing) {
  rondo::test::World{2}.run([](transport::World& world) {
    test::Arrays arrays(world, {5000, 20, 300, 100'000});
    const auto scheme =
        make_synchronous(arrays.replica(), make_sgd(arrays.parameters.size(), {}), {1024, 512});
    for (int i = 0; i < 3; ++i) iterate(*scheme, arrays.layers(), i);  // pools fill

    const std::size_t before = allocations_of_this_thread();
    for (int i = 3; i < 50; ++i) iterate(*scheme, arrays.layers(), i);

    EXPECT_EQ(allocations_of_this_thread() - before, 0U);
  });
}

TEST(SynchronousAllocationTest, TheCounterCounts) {
  const std::size_t before = allocations_of_this_thread();

  const auto sgd = make_sgd(10, {});

  EXPECT_GT(allocations_of_this_thread(), before);
}

}  // namespace
}  // namespace rondo::sync::synchronous_allocation_test
