#pragma once

// What every collective promises, whatever carries it. One suite; a file per backend instantiates
// it, so that a backend that is not built is missing from the list of tests.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"

namespace rondo::test {

/// Parameters: backend, memory, ranks. Every case goes through the awkward counts.
class ConformanceTest : public testing::TestWithParam<std::tuple<Backend, Memory, int>> {
 protected:
  using Ints = std::pmr::vector<std::int32_t>;

  [[nodiscard]] Backend backend() const { return std::get<0>(GetParam()); }
  [[nodiscard]] Memory memory() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::size_t ranks() const {
    return static_cast<std::size_t>(std::get<2>(GetParam()));
  }
  /// All cases of a backend and a number of ranks use the same one.
  [[nodiscard]] OpenWorld& world() const {
    return worlds()
        .try_emplace({backend(), std::get<2>(GetParam())}, backend(), std::get<2>(GetParam()))
        .first->second;
  }
  static void TearDownTestSuite() { worlds().clear(); }

  /// They straddle the number of ranks; the last takes several segments on many ranks.
  [[nodiscard]] std::vector<std::size_t> counts() const {
    return {0, 1, ranks() - 1, ranks(), ranks() + 1, 10'007};
  }

  [[nodiscard]] Ints ints(transport::World& world, std::size_t count,
                          std::int32_t value = -1) const {
    return Ints(count, value, resource(world, memory()));
  }

  /// `count` numbers that tell their rank and place.
  [[nodiscard]] Ints numbers(transport::World& world, std::size_t count) const {
    Ints data = ints(world, count);
    for (std::size_t i = 0; i < count; ++i) data[i] = number(rank_of(world), i);
    return data;
  }
  [[nodiscard]] static std::int32_t number(std::size_t rank, std::size_t i) {
    return static_cast<std::int32_t>(rank * 100'003 + i);
  }
  /// The sum of all ranks' number(rank, i).
  [[nodiscard]] std::int32_t sum(std::size_t i) const {
    return static_cast<std::int32_t>(ranks() * (ranks() - 1) / 2 * 100'003 + ranks() * i);
  }
  [[nodiscard]] static std::size_t rank_of(const transport::World& world) {
    return static_cast<std::size_t>(world.rank());
  }

  /// Uneven shares, some of them empty: rank r gets (r mod 3) * unit.
  [[nodiscard]] std::vector<std::size_t> shares(std::size_t unit) const {
    std::vector<std::size_t> shares;
    for (std::size_t r = 0; r < ranks(); ++r) shares.push_back(r % 3 * unit);
    return shares;
  }
  [[nodiscard]] static std::size_t before(const std::vector<std::size_t>& shares,
                                          std::size_t rank) {
    return std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::size_t{0});
  }
  /// Ranks that are roots in turn.
  [[nodiscard]] std::vector<int> roots() const {
    const int last = static_cast<int>(ranks()) - 1;
    return {0, last / 2, last};
  }

 private:
  static std::map<std::pair<Backend, int>, OpenWorld>& worlds() {
    static std::map<std::pair<Backend, int>, OpenWorld> open;
    return open;
  }
};

inline std::string name_of_conformance_test(
    const testing::TestParamInfo<ConformanceTest::ParamType>& info) {
  return std::string(name_of(std::get<1>(info.param))) + std::to_string(std::get<2>(info.param)) +
         "ranks";
}

/// Ranks 1-9, 13 and 16.
inline const auto conformance_ranks = testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16);
inline const auto conformance_memories =
    testing::Values(Memory::arena, Memory::ordinary, Memory::mixed);

}  // namespace rondo::test
