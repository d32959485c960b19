// An iteration allocates nothing, neither in the scheme nor in the transport below it.

#include <cstddef>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace {

// Of this thread: ranks are threads, and each counts its own.
thread_local std::size_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace rondo::sync {
namespace {

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

    const std::size_t before = allocations;
    for (int i = 3; i < 50; ++i) iterate(*scheme, arrays.layers(), i);

    EXPECT_EQ(allocations - before, 0U);
  });
}

TEST(SynchronousAllocationTest, TheCounterCounts) {
  const std::size_t before = allocations;

  const auto sgd = make_sgd(10, {});

  EXPECT_GT(allocations, before);
}

}  // namespace
}  // namespace rondo::sync
