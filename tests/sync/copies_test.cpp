// Layers that several ranks of a replica hold, under each scheme: all copies keep the same bits,
// however the replicas lie on nodes and however large the slices of other layers are.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/given.hpp"

namespace rondo::sync::copies_test {
namespace {

using rondo::test::World;
using test::Given;
using test::iterate;
using test::step_of;

constexpr int positions = 2;
constexpr std::size_t copied = 300;

// Each replica has two ranks, which hold a slice each of a first layer, and both the whole of a
// second one.
struct Position {
  Position(transport::World& world, std::size_t slice)
      : arrays(world, {slice, copied}),
        position(world.rank() % positions),
        index(world.rank() / positions),
        own_replica(world.communicator().split(index, position)),
        across(world.communicator().split(position, index)) {}

  // Both compute the gradients of the second layer alike.
  Replica replica() {
    Replica replica = arrays.replica();
    for (Layer& layer : replica.layers) layer.groups = {nullptr, &across, &across};
    replica.slices.over = &own_replica;
    replica.slices.counted = {{0, replica.layers[0].size}};
    const std::size_t offset = replica.layers[1].offset;
    if (position == 0) replica.slices.counted.push_back({offset, copied});
    replica.slices.copies = {{.holders = &own_replica, .offset = offset, .size = copied}};
    return replica;
  }

  test::Arrays arrays;
  int position;
  int index;
  transport::Communicator own_replica;
  transport::Communicator across;
};

// An element of the second layer's gradient.
float gradient(int replica, int step, std::size_t element, float parameter) {
  return std::sin(1.3F * static_cast<float>(element) + 0.7F * static_cast<float>(replica + step)) +
         0.01F * parameter;
}

struct Case {
  std::string name;
  test::Scheme (*make)(const Given& given);
  std::unique_ptr<Optimizer> (*make_optimizer)(std::size_t size) = [](std::size_t size) {
    return make_sgd(size, {.momentum = 0.9F});
  };
  bool gathers = false;  ///< parameters, before the next iteration

  friend void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }
};

// Has each rank of the group the same copies as its first one?
bool is_as_first(transport::Communicator& group, std::span<const float> parameters) {
  const std::span<const float> mine = parameters.last(copied);
  std::vector<float> first(mine.begin(), mine.end());
  group.broadcast(std::span(first), 0).wait();
  return std::ranges::equal(mine, first);
}

void expect_equal_copies(transport::World& world, const Case& each, std::size_t slice) {
  Position own(world, slice);
  const test::Scheme scheme =
      each.make({own.replica(), each.make_optimizer(slice + copied), own.own_replica});
  std::vector<float> evaluated(own.arrays.parameters.size());
  for (int index = 0; index < 20; ++index) {
    iterate(*scheme, own.arrays, step_of(world, index), [&](std::size_t i, float parameter) {
      return i < slice ? 0.5F : gradient(own.index, index, i - slice, parameter);
    });
    std::vector<float> statistics;
    if (!each.gathers) {
      ASSERT_TRUE(is_as_first(own.own_replica, own.arrays.parameters)) << index;
    }
    if (index % 5 == 4) {
      scheme->copy_for_evaluation(evaluated, statistics);
      ASSERT_TRUE(is_as_first(own.own_replica, evaluated)) << index;
    }
  }
  scheme->flush();
  EXPECT_TRUE(is_as_first(world.communicator(), own.arrays.parameters)) << "after flush()";
}

constexpr auto bf16 = transport::ElementType::bf16;
constexpr SynchronousOptions small_buckets_in_bf16{
    .bucket_bytes = 2'000, .last_bucket_bytes = 2'000, .gradient_type = bf16};

std::unique_ptr<Optimizer> adam(std::size_t size) { return make_adam(size); }

const std::vector<Case> cases = {
    {"Averages", [](const Given& g) { return g.k_step({.period = 3}); }, adam},
    {"States",
     [](const Given& g) { return g.k_step({.period = 3, .local_state = LocalState::average}); },
     adam},
    {"Overlapped", [](const Given& g) { return g.k_step({.period = 3, .overlap_steps = 2}); },
     adam},
    {"Fragments", [](const Given& g) { return g.k_step({.period = 4, .fragments = 2}); }, adam},
    {"AveragesInBf16", [](const Given& g) { return g.k_step({.period = 3, .average_type = bf16}); },
     adam},
    {"Synchronous", [](const Given& g) { return g.synchronous(); }},
    {"SmallBucketsInBf16", [](const Given& g) { return g.synchronous(small_buckets_in_bf16); }},
    {"Sharded",
     [](const Given& g) { return g.sharded({.bucket_bytes = 2'000, .gradient_type = bf16}); },
     [](std::size_t size) { return make_sgd(size, {.momentum = 0.9F}); }, true},
    {"Lazy", [](const Given& g) { return g.lazy({.max_interval = 4}); }}};

class CopiesTest : public testing::TestWithParam<Case> {
 protected:
  static void expect_equal(transport::World& world, std::size_t slice) {
    expect_equal_copies(world, GetParam(), slice);
  }
};

// Nodes of 3, 3 and 2 ranks: the second and third replica lie on two nodes each, and of the four
// ranks of a position other two share a node than of the other position.
TEST_P(CopiesTest, AreEqualWhereNodesCutReplicas) {
  transport::WorldOptions options = rondo::test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 3};
  World(8, options).run([](transport::World& world) { expect_equal(world, 100); });
}

// An allreduce of 20,300 elements goes another way than one of 400.
TEST_P(CopiesTest, AreEqualWhereOtherLayersHaveSlicesOfDifferentSizes) {
  for (const auto backend : {rondo::test::Backend::shm_nodes, rondo::test::Backend::shm}) {
    World(backend, 8).run([](transport::World& world) {
      expect_equal(world, world.rank() % positions == 0 ? 100 : 20'000);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, CopiesTest, testing::ValuesIn(cases),
                         [](const auto& value) { return value.param.name; });

}  // namespace
}  // namespace rondo::sync::copies_test
