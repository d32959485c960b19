// Averages whose displacements are sent as bf16: where all values fit they are those of fp32, and
// what rounding leaves out arrives with the next one.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::averages_in_bf16_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::step_of;
using testing::Each;
using testing::ElementsAreArray;

constexpr std::size_t size = 70;
constexpr auto bf16 = transport::ElementType::bf16;

struct Result {
  std::vector<float> parameters = {};
  SchemeCounters counters = {};
};

// 12 steps by small whole numbers, which differ from rank to rank.
Result run(transport::World& world, const KStepOptions& options) {
  Arrays arrays(world, {size}, 3);
  const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.0F}), options);
  for (int index = 0; index < 12; ++index) {
    test::iterate(*scheme, arrays, step_of(world, index, {.rate = 1.0}), [&](std::size_t i, float) {
      return static_cast<float>((static_cast<int>(i) + index + 3 * world.rank()) % 5 - 2);
    });
  }
  scheme->flush();
  return {{arrays.parameters.begin(), arrays.parameters.end()}, scheme->counters()};
}

/// 1, 2 and 4 ranks, over which sums of equal values are exact.
class AveragesInBf16Test : public RanksTest {};

TEST_P(AveragesInBf16Test, AreThoseOfFp32WhereAllValuesFit) {
  World{ranks()}.run([](transport::World& world) {
    for (const std::int64_t overlap_steps : {0, 2}) {
      const Result full = run(world, {.period = 4, .overlap_steps = overlap_steps});
      const Result half =
          run(world, {.period = 4, .overlap_steps = overlap_steps, .average_type = bf16});

      EXPECT_THAT(half.parameters, ElementsAreArray(full.parameters));
      EXPECT_EQ(half.counters.global_reductions, full.counters.global_reductions);
    }
  });
}

// Three averages of 70 parameters, 3 statistics and a weight.
TEST_P(AveragesInBf16Test, SendHalfOfTheDisplacementsBytes) {
  World{ranks()}.run([](transport::World& world) {
    const std::uint64_t met = world.size() == 1 ? 0 : 3;
    const Result full = run(world, {.period = 4});
    const Result half = run(world, {.period = 4, .average_type = bf16});

    EXPECT_EQ(full.counters.global_bytes, met * (4 * size + 4 * (3 + 1)));
    EXPECT_EQ(half.counters.global_bytes, met * (2 * size + 4 * (3 + 1)));
    EXPECT_EQ(half.counters.collectives, 2 * met);
  });
}

// Every round moves by 1 + 2^-9, of which bf16 holds 1: the rest arrives when it is 2^-7. Without
// feedback it would never.
TEST_P(AveragesInBf16Test, WhatRoundingLeavesOutIsSentLater) {
  World{ranks()}.run([](transport::World& world) {
    const float step = 0.5F + std::ldexp(1.0F, -10);
    Arrays arrays(world, {size});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.0F}),
                                    {.period = 2, .average_type = bf16});
    const auto move = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        test::iterate(*scheme, arrays, step_of(world, i, {.rate = 1.0}),
                      [&](std::size_t, float) { return -step; });
      }
    };
    const bool rounds = world.size() > 1;

    move(2);
    EXPECT_THAT(arrays.parameters, Each(rounds ? 1.0F : 2 * step));
    move(4);
    EXPECT_THAT(arrays.parameters, Each(rounds ? 3.0F + std::ldexp(1.0F, -7) : 6 * step));
    move(3);
    std::vector<float> evaluated(size);
    scheme->copy_for_evaluation(evaluated, {});
    scheme->flush();

    EXPECT_THAT(arrays.parameters, Each(9 * step)) << "flush() leaves nothing behind";
    EXPECT_THAT(evaluated, Each(9 * step));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, AveragesInBf16Test, testing::Values(1, 2, 4));

}  // namespace
}  // namespace rondo::sync::averages_in_bf16_test
