// A scheme allocates, when it is made, as much as its closed form says: bytes in the World's arena,
// and bytes from operator new. A part that does not grow with the model is far less than the
// smallest array, and is tolerated. The same is true of what a scheme is said to save.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/scheme_memory.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::scheme_memory_test {
namespace {

using rondo::test::World;
using transport::ElementType;
using Scheme = std::unique_ptr<UpdateScheme>;
using SharedOptimizer = std::shared_ptr<Optimizer>;
using Make = std::function<Scheme(const Replica& replica, const SharedOptimizer& optimizer)>;

constexpr std::size_t statistics = 20'000;
constexpr std::size_t small = 48 * 1024;  // bytes that do not grow with the model
const std::vector<std::size_t> layers = {40'000, 30'000, 50'000};

ReplicaSizes sizes_of(int ranks) {
  ReplicaSizes sizes{.statistics = statistics, .replicas = ranks};
  for (const std::size_t size : layers) sizes.layers.push_back({size, ranks});
  sizes.optimizer_state = sizes.parameters();  // of SGD
  return sizes;
}

/// By rank.
std::vector<std::size_t> allocated(int ranks, const Make& make) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(ranks));
  World{ranks}.run([&](transport::World& world) {
    test::Arrays arrays(world, layers, statistics);
    const SharedOptimizer optimizer = make_sgd(arrays.parameters.size(), {.momentum = 0.5F});
    const Replica replica = arrays.replica();
    const std::size_t before =
        world.arena().used_bytes() + rondo::test::bytes_allocated_by_this_thread();
    const Scheme scheme = make(replica, optimizer);
    bytes[static_cast<std::size_t>(world.rank())] =
        world.arena().used_bytes() + rondo::test::bytes_allocated_by_this_thread() - before;
  });
  return bytes;
}

void expect_memory(std::size_t said, int ranks, const Make& make) {
  for (const std::size_t bytes : allocated(ranks, make)) {
    EXPECT_GE(bytes, said) << ranks << " ranks";
    EXPECT_LE(bytes, said + small) << ranks << " ranks";
  }
}

/// On one rank and on two.
template <typename Options, typename MakeOf>
void expect_memory_of(const Options& options, const MakeOf& make) {
  for (const int ranks : {1, 2}) {
    expect_memory(memory_of(sizes_of(ranks), options), ranks,
                  [&](const Replica& replica, const SharedOptimizer& optimizer) {
                    return make(replica, optimizer, options);
                  });
  }
}

LazyOptions lazy_options() {
  return {.lazy_layers = 2, .probes = {{100, 25'000}, {40'000, 20'000}}};
}

TEST(SchemeMemoryTest, OfSynchronous) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    expect_memory_of(SynchronousOptions{.gradient_type = type}, make_synchronous);
    expect_memory_of(SynchronousOptions{.gradient_type = type}, make_sharded);
  }
}

TEST(SchemeMemoryTest, OfLazy) {
  for (const auto controller : {LazyController::probe, LazyController::every_layer}) {
    LazyOptions options = lazy_options();
    options.controller = controller;
    expect_memory_of(options, make_lazy);
    options.gradient_type = ElementType::bf16;
    expect_memory_of(options, make_lazy);
  }
}

TEST(SchemeMemoryTest, OfKStep) {
  expect_memory_of(KStepOptions{}, make_k_step);
  expect_memory_of(KStepOptions{.momentum = {.mu = 0.5F}}, make_k_step);
  expect_memory_of(KStepOptions{.local_state = LocalState::average}, make_k_step);
  expect_memory_of(KStepOptions{.average_type = ElementType::bf16}, make_k_step);
}

TEST(SchemeMemoryTest, OfAveragesThatOverlap) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    expect_memory_of(KStepOptions{.overlap_steps = 2, .average_type = type}, make_k_step);
    expect_memory_of(KStepOptions{.overlap_steps = 2, .fragments = 3, .average_type = type},
                     make_k_step);
  }
}

TEST(SchemeMemoryTest, OfHierarchical) {
  expect_memory_of(HierarchicalOptions{.momentum = {.mu = 0.5F}, .fragments = 2},
                   make_hierarchical);
}

// The ranks of a World in one process are one node, whose store the first of them has.
TEST(SchemeMemoryTest, OfCyclic) {
  const std::vector<std::size_t> bytes =
      allocated(2, [](const Replica& replica, const SharedOptimizer& optimizer) {
        return make_cyclic(replica, optimizer);
      });

  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::size_t said = memory_of_cyclic(sizes_of(2), rank == 0);
    EXPECT_GE(bytes[rank], said) << rank;
    EXPECT_LE(bytes[rank], said + small) << rank;
  }
}

/// The most bytes that rank 0 saves behind one of the first iterations.
std::size_t most_saved(int ranks, const Make& make) {
  std::size_t most = 0;
  World{ranks}.run([&](transport::World& world) {
    test::Arrays arrays(world, layers, statistics);
    const Scheme scheme =
        make(arrays.replica(), make_sgd(arrays.parameters.size(), {.momentum = 0.5F}));
    for (std::int64_t index = 0; index < 4; ++index) {
      test::iterate(*scheme, arrays, test::step_of(world, index, {.rate = 0.1}),
                    [](std::size_t, float) { return 1.0F; });
      for (std::size_t layer = 0; layer < layers.size(); ++layer) scheme->make_ready(layer);
      const std::size_t saved = scheme->save().size();
      if (world.rank() == 0) most = std::max(most, saved);
    }
  });
  return most;
}

template <typename Options, typename MakeOf>
void expect_saved_by(const Options& options, const MakeOf& make) {
  constexpr std::size_t counts = 1024;
  for (const int ranks : {1, 2}) {
    const std::size_t said = saved_by(sizes_of(ranks), options);
    const std::size_t saved =
        most_saved(ranks, [&](const Replica& replica, const SharedOptimizer& optimizer) {
          return make(replica, optimizer, options);
        });
    EXPECT_GE(saved, said) << ranks << " ranks";
    EXPECT_LE(saved, said + counts) << ranks << " ranks";
  }
}

TEST(SchemeMemoryTest, SynchronousSavesTheState) {
  expect_saved_by(SynchronousOptions{}, make_synchronous);
}

TEST(SchemeMemoryTest, LazySavesItsLayersWithinAWindow) {
  expect_saved_by(lazy_options(), make_lazy);
}

TEST(SchemeMemoryTest, AveragesSaveTheirModelAndWhatIsUnderWay) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    for (const float mu : {0.0F, 0.5F}) {
      for (const std::int64_t overlap : {0, 1}) {
        expect_saved_by(KStepOptions{.period = 2,
                                     .momentum = {.mu = mu},
                                     .overlap_steps = overlap,
                                     .average_type = type},
                        make_k_step);
      }
    }
  }
  expect_saved_by(HierarchicalOptions{.period = 2, .momentum = {.mu = 0.5F}}, make_hierarchical);
}

// A worker alone holds the token, and so the store.
TEST(SchemeMemoryTest, CyclicSavesItsGradientsAndTheStore) {
  World{1}.run([](transport::World& world) {
    constexpr std::size_t counts = 1024;
    test::Arrays arrays(world, layers, statistics);
    const Scheme scheme =
        make_cyclic(arrays.replica(), make_sgd(arrays.parameters.size(), {.momentum = 0.5F}));
    for (std::int64_t index = 0; index < 2; ++index) {
      test::iterate(*scheme, arrays,
                    {.index = index, .local_samples = 1, .global_samples = 1, .learning_rate = 0.1},
                    [](std::size_t, float) { return 1.0F; });
    }
    scheme->flush();

    const std::size_t saved = scheme->save().size();

    EXPECT_GE(saved, saved_by_cyclic(sizes_of(1)));
    EXPECT_LE(saved, saved_by_cyclic(sizes_of(1)) + counts);
  });
}

// A share ends with a cache line, and so does what is said of each layer.
TEST(SchemeMemoryTest, AShareOfTheStateIsWhatIsSaved) {
  for (const int ranks : {1, 2, 3}) {
    std::size_t saved = 0;
    World{ranks}.run([&](transport::World& world) {
      test::Arrays arrays(world, layers);
      const auto scheme = make_sharded(
          arrays.replica(), make_sgd(arrays.parameters.size(), {.momentum = 0.5F}), {4096, 1024});
      if (world.rank() == 0) saved = scheme->save().size();
    });
    const std::size_t said = sharded_state(sizes_of(ranks)) * sizeof(float);
    EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(said), 1024.0) << ranks;
  }
}

}  // namespace
}  // namespace rondo::sync::scheme_memory_test
