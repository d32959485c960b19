// Allreduce by halving in whole Worlds, over all links between nodes: among the owners of the
// shards of nodes that have several ranks, and flat between all ranks. link_collectives_test.cpp
// has its messages, and that its sums have the bits of those by doubling; link_faults_test.cpp,
// whom it blames.

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/backends.hpp"
#include "support/check_calls.hpp"
#include "support/world.hpp"

namespace rondo::transport::halving_test {
namespace {

using test::Backend;
using test::Memory;

// Parameters: the table, and the way between nodes.
class HalvingTest : public testing::TestWithParam<std::tuple<const char*, Backend>> {
 protected:
  [[nodiscard]] static Backend backend() { return std::get<1>(GetParam()); }
  [[nodiscard]] static test::World world(int ranks) {
    WorldOptions options = test::quick_options();
    options.fabric = test::fabric_of(backend(), ranks);
    options.fabric.allreduce = std::get<0>(GetParam());
    return test::World(ranks, options);
  }
  /// Links of other libraries open slowly.
  [[nodiscard]] static std::vector<int> numbers_of_ranks() {
    const bool is_quick = backend() == Backend::shm_nodes || backend() == Backend::hierarchy ||
                          backend() == Backend::tcp;
    return is_quick ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9} : std::vector{2, 3, 8};
  }
};

// The counts straddle the number of ranks, and the lines of which halves are made.
TEST_P(HalvingTest, ReducesInPlaceAndOutOfPlace) {
  for (const int ranks : numbers_of_ranks()) {
    world(ranks).run([&](World& world) {
      const auto size = static_cast<std::size_t>(ranks);
      for (const Memory memory : {Memory::arena, Memory::ordinary, Memory::mixed}) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1, 16 * size, 10'007UL}) {
          for (const char* call : {"AllreduceInPlace", "AllreduceOfTheGreatest"}) {
            test::check_call(world, memory, test::call_named(call), count, 0);
          }
        }
      }
    });
  }
}

// Inside a node and between nodes.
TEST_P(HalvingTest, ReducesEveryTypeByEveryOperation) {
  if (backend() != Backend::shm_nodes && backend() != Backend::hierarchy) return;
  world(3).run([](World& world) {
    for (const std::size_t count : {5U, 10'007U}) {
      test::check_reductions(world, Memory::arena, count, [](auto...) { return true; });
    }
  });
}

std::string name_of_case(const testing::TestParamInfo<HalvingTest::ParamType>& info) {
  return test::name_of(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Levels, HalvingTest,
                         testing::Combine(testing::Values("rh:0-max"),
                                          testing::ValuesIn(test::node_backends())),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(Flat, HalvingTest,
                         testing::Combine(testing::Values("flat-rh:0-max"),
                                          testing::ValuesIn(test::node_backends())),
                         name_of_case);

}  // namespace
}  // namespace rondo::transport::halving_test
