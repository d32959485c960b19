// The controllers' truth tables: from the tests alone, and of gradients that follow a pattern.

#include "schemes/lazy_controller.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flat/flat.hpp"
#include "support/world.hpp"
#include "sync/lazy_run.hpp"

namespace rondo::sync::lazy_controller_test {
namespace {

using testing::ElementsAre;
using Values = std::vector<float>;

constexpr LazyController probe = LazyController::probe;
constexpr LazyController every_layer = LazyController::every_layer;

ProbeProducts products(const Values& last, const Values& sum) {
  return {flat::dot(last, sum), flat::dot(last, last), flat::dot(sum, sum)};
}

TEST(LazyControllerTest, TestsTheLastGradientAgainstTheSum) {
  struct Row {
    Values last, sum;
    bool angle, magnitude;
  };
  const std::vector<Row> table{
      {{1, 0}, {2, 0}, true, true},     // constant
      {{0, 1}, {1, 1}, true, true},     // orthogonal, just as long
      {{0, 0}, {0, 0}, true, true},     // zero
      {{-1, 0}, {0, 0}, false, false},  // the opposite
      {{2, 0}, {2, 0}, true, false},    // nothing before
      {{-1, 0}, {3, 0}, false, true},   // a little back
  };
  for (const Row& row : table) {
    const ProbeTests tests = test_probe(products(row.last, row.sum), 2);

    EXPECT_EQ(tests.angle, row.angle) << testing::PrintToString(row.sum);
    EXPECT_EQ(tests.magnitude, row.magnitude) << testing::PrintToString(row.sum);
  }
}

TEST(LazyControllerTest, WhatIsNoNumberFailsBothTests) {
  const Values values{std::numeric_limits<float>::quiet_NaN()};
  const ProbeProducts broken = products(values, values);

  EXPECT_FALSE(test_probe(broken, 2).angle);
  EXPECT_FALSE(test_probe(broken, 2).magnitude);
}

// It grows on both tests and shrinks on neither, between one and the cap; every_layer on all
// angles, and when more than half fail.
TEST(LazyControllerTest, ChoosesTheNextInterval) {
  EXPECT_EQ(next_interval(probe, {{true, true}}, 4, 16), 5);
  EXPECT_EQ(next_interval(probe, {{true, false}}, 4, 16), 4);
  EXPECT_EQ(next_interval(probe, {{false, true}}, 4, 16), 4);
  EXPECT_EQ(next_interval(probe, {{false, false}}, 4, 16), 3);
  EXPECT_EQ(next_interval(probe, {{false, false}}, 1, 16), 1);
  EXPECT_EQ(next_interval(probe, {{true, true}}, 16, 16), 16);
  EXPECT_EQ(next_interval(probe, {{true, true}}, 16, 0), 17);
  EXPECT_EQ(next_interval(every_layer, {{true, false}, 4, 4}, 4, 16), 5);
  EXPECT_EQ(next_interval(every_layer, {{true, true}, 4, 3}, 4, 16), 4);
  EXPECT_EQ(next_interval(every_layer, {{true, true}, 4, 2}, 4, 16), 4);
  EXPECT_EQ(next_interval(every_layer, {{true, true}, 4, 1}, 4, 16), 3);
}

/// The intervals of five windows where step s has gradient(s, element), of two elements per layer.
std::vector<std::int64_t> intervals(LazyController controller, std::int64_t cap,
                                    const std::function<float(int, std::size_t)>& gradient) {
  std::vector<std::int64_t> result;
  rondo::test::World{1}.run([&](transport::World& world) {
    test::LazyRun run(world, {2, 2},
                      {.lazy_layers = 2,
                       .probes = {{0, 2}, {2, 2}},
                       .controller = controller,
                       .max_interval = cap});
    for (int step = 0; run.windows.size() < 5; ++step) {
      run.step([&](std::size_t element) { return gradient(step, element); });
    }
    result = run.intervals();
  });
  return result;
}

TEST(LazyControllerTest, FollowsThePatternOfTheGradients) {
  const auto constant = [](int, std::size_t) { return 1.0F; };
  const auto zero = [](int, std::size_t) { return 0.0F; };
  const auto alternating = [](int step, std::size_t) { return step % 2 == 0 ? 1.0F : -1.0F; };
  const auto orthogonal = [](int step, std::size_t element) {
    return static_cast<std::size_t>(step % 2) == element % 2 ? 1.0F : 0.0F;
  };
  for (const LazyController controller : {probe, every_layer}) {
    EXPECT_THAT(intervals(controller, 0, constant), ElementsAre(2, 3, 4, 5, 6));
    EXPECT_THAT(intervals(controller, 3, constant), ElementsAre(2, 3, 3, 3, 3));
    EXPECT_THAT(intervals(controller, 16, zero), ElementsAre(2, 3, 4, 5, 6));
    EXPECT_THAT(intervals(controller, 16, alternating), ElementsAre(2, 1, 2, 1, 2));
    // They pass by equality, up to two in a window: more in two dimensions repeat themselves.
    EXPECT_THAT(intervals(controller, 2, orthogonal), ElementsAre(2, 2, 2, 2, 2));
    EXPECT_EQ(intervals(controller, 16, orthogonal).at(1), 3);
  }
  // Layer 0 turns back, layer 1 goes on: only every_layer minds, and half is not more than half.
  const auto half = [](int step, std::size_t element) {
    return element >= 2 || step % 2 == 0 ? 1.0F : -1.0F;
  };
  EXPECT_THAT(intervals(probe, 0, half), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_THAT(intervals(every_layer, 0, half), ElementsAre(2, 2, 2, 2, 2));
}

// 0.4 / eta iterations: 3.2, then 6.4; less than one; just 3; and, of a rate of 0, no limit.
TEST(LazyControllerTest, WindowsAreShorterAtHigherRates) {
  rondo::test::World{2}.run([](transport::World& world) {
    LazyOptions options{.lazy_layers = 1, .probes = {{0, 4}}, .max_interval_rate = 0.4};
    test::LazyRun run(world, {4, 4}, options);
    const auto window = [&](double rate) {
      const std::size_t before = run.windows.size();
      while (run.windows.size() == before) run.step([](std::size_t) { return 1.0F; }, rate);
      return run.windows.back().interval;
    };
    EXPECT_EQ(window(0.125), 2);
    EXPECT_EQ(window(0.125), 3);
    EXPECT_EQ(window(0.125), 3);
    EXPECT_EQ(window(0.0625), 4);
    EXPECT_EQ(window(0.0625), 5);
    EXPECT_EQ(window(0.0625), 6);
    EXPECT_EQ(window(0.0625), 6);
    EXPECT_EQ(window(0.5), 1);
    EXPECT_EQ(window(0.4 / 3.0), 2);
    EXPECT_EQ(window(0.4 / 3.0), 3);
    EXPECT_EQ(window(0.0), 4);
  });
}

TEST(LazyControllerTest, ARateCapOfMuchIsNone) {
  rondo::test::World{2}.run([](transport::World& world) {
    for (const std::int64_t cap : {0, 3}) {
      LazyOptions options{.lazy_layers = 1, .probes = {{0, 4}}, .max_interval = cap};
      test::LazyRun plain(world, {4, 4}, options);
      options.max_interval_rate = 1e300;
      test::LazyRun capped(world, {4, 4}, options);
      for (int i = 0; i < 20; ++i) {
        plain.constant_step(1.0F);
        capped.constant_step(1.0F);
      }
      EXPECT_EQ(capped.intervals(), plain.intervals());
      EXPECT_THAT(capped.arrays.parameters, testing::ElementsAreArray(plain.arrays.parameters));
    }
  });
}

}  // namespace
}  // namespace rondo::sync::lazy_controller_test
