// Layers that several ranks of a replica hold, under updates by averages: all copies keep the same
// bits, however the replicas lie on nodes and however large the slices of other layers are.

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::copies_test {
namespace {

using rondo::test::World;
using test::iterate;
using test::step_of;
using testing::ElementsAreArray;

constexpr int positions = 2;
constexpr std::size_t copied = 300;
using Make = std::function<std::unique_ptr<UpdateScheme>(Replica)>;

// Each replica has two ranks, which hold a slice each of a first layer, and both the whole of a
// second one.
struct Position {
  Position(transport::World& world, std::size_t slice)
      : arrays(world, {slice, copied}),
        position(world.rank() % positions),
        index(world.rank() / positions),
        own_replica(world.communicator().split(index, position)),
        across(world.communicator().split(position, index)) {}

  Replica replica() {
    Replica replica = arrays.replica();
    replica.layers[0].groups = {nullptr, &across, &across};
    replica.layers[1].groups.inner = &own_replica;
    replica.layers[1].groups.outer = &across;
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

// Gradients of the second layer are alike on both ranks of a replica, as sums over them are.
float gradient(int replica, int step, std::size_t element, float parameter) {
  return std::sin(1.3F * static_cast<float>(element) + 0.7F * static_cast<float>(replica + step)) +
         0.01F * parameter;
}

void expect_equal_copies(transport::World& world, const Make& make, std::size_t slice) {
  Position own(world, slice);
  const std::unique_ptr<UpdateScheme> scheme = make(own.replica());
  const auto mine = [&] {
    return std::vector(own.arrays.parameters.end() - copied, own.arrays.parameters.end());
  };
  for (int index = 0; index < 20; ++index) {
    iterate(*scheme, own.arrays, step_of(world, index), [&](std::size_t i, float parameter) {
      return i < slice ? 0.5F : gradient(own.index, index, i - slice, parameter);
    });
    std::vector<float> first = mine();
    own.own_replica.broadcast(std::span(first), 0).wait();
    ASSERT_THAT(mine(), ElementsAreArray(first)) << index;
  }
  scheme->flush();
  std::vector<float> first = mine();
  world.communicator().broadcast(std::span(first), 0).wait();
  EXPECT_THAT(mine(), ElementsAreArray(first)) << "after flush()";
}

struct Case {
  std::string name;
  KStepOptions options = {};

  friend void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }
};

class CopiesTest : public testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<UpdateScheme> make(Replica replica) {
    const std::size_t size = replica.parameters.size();
    return make_k_step(std::move(replica), make_adam(size, {}), GetParam().options);
  }
};

// Nodes of 3, 3 and 2 ranks: the second and third replica lie on two nodes each, and of the four
// ranks of a position other two share a node than of the other position.
TEST_P(CopiesTest, AreEqualWhereNodesCutReplicas) {
  transport::WorldOptions options = rondo::test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 3};
  World(8, options).run([](transport::World& world) { expect_equal_copies(world, make, 100); });
}

// An allreduce of 20,300 elements goes another way than one of 400.
TEST_P(CopiesTest, AreEqualWhereOtherLayersHaveSlicesOfDifferentSizes) {
  World(rondo::test::Backend::shm_nodes, 8).run([](transport::World& world) {
    expect_equal_copies(world, make, world.rank() % positions == 0 ? 100 : 20'000);
  });
}

INSTANTIATE_TEST_SUITE_P(
    KStep, CopiesTest,
    testing::Values(Case{"Plain", {.period = 3}},
                    Case{"States", {.period = 3, .local_state = LocalState::average}},
                    Case{"Overlapped", {.period = 3, .overlap_steps = 2}},
                    Case{"Fragments", {.period = 4, .fragments = 2}},
                    Case{"Bf16", {.period = 3, .average_type = transport::ElementType::bf16}}),
    [](const auto& value) { return value.param.name; });

}  // namespace
}  // namespace rondo::sync::copies_test
