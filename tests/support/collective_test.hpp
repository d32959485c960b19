#pragma once

// What the suites of the collectives share: their parameters, and values that tell where they
// come from.

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "support/world.hpp"

namespace rondo::test {

using Ints = std::pmr::vector<std::int32_t>;

/// Parameters: backend, memory, ranks, elements (of what, the suite says).
class CollectiveTest
    : public testing::TestWithParam<std::tuple<Backend, Memory, int, std::size_t>> {
 protected:
  [[nodiscard]] World world() const { return {std::get<0>(GetParam()), static_cast<int>(ranks())}; }
  [[nodiscard]] Memory memory() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::size_t ranks() const {
    return static_cast<std::size_t>(std::get<2>(GetParam()));
  }
  [[nodiscard]] std::size_t elements() const { return std::get<3>(GetParam()); }

  [[nodiscard]] Ints ints(transport::World& world, std::size_t count,
                          std::int32_t value = 0) const {
    return Ints(count, value, resource(world, memory()));
  }
};

/// Element `element` of what `rank` gives.
inline std::int32_t value(std::size_t rank, std::size_t element) {
  return static_cast<std::int32_t>(rank * 1'000'003 + element);
}

/// The sum of that over all of `ranks`.
inline std::int32_t sum_of_values(std::size_t ranks, std::size_t element) {
  return static_cast<std::int32_t>(ranks * (ranks - 1) / 2 * 1'000'003 + ranks * element);
}

inline void fill_with_values(Ints& ints, std::size_t rank) {
  for (std::size_t i = 0; i < ints.size(); ++i) ints[i] = value(rank, i);
}

inline std::size_t rank_of(const transport::World& world) {
  return static_cast<std::size_t>(world.rank());
}

inline std::string name_of_collective_test(
    const testing::TestParamInfo<CollectiveTest::ParamType>& info) {
  return std::string(name_of(std::get<1>(info.param))) + std::to_string(std::get<2>(info.param)) +
         "ranks" + std::to_string(std::get<3>(info.param)) + "elements";
}

inline const auto all_memories = testing::Values(Memory::arena, Memory::ordinary, Memory::mixed);

}  // namespace rondo::test
