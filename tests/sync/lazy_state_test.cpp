// In the middle of a window: evaluation, the end of training, and a run that is restored.

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/world.hpp"
#include "sync/lazy_run.hpp"

namespace rondo::sync::lazy_state_test {
namespace {

using rondo::test::World;
using test::LazyRun;
using testing::ElementsAreArray;

const std::vector<std::size_t> sizes{50, 30, 60};

LazyOptions options() { return {.lazy_layers = 2, .probes = {{0, 40}, {50, 30}}}; }

/// After windows of 1 and 2 iterations, and `more` of the next, which has three.
void start(LazyRun& run, int more) {
  std::ranges::fill(run.arrays.parameters, 1.0F);
  for (int i = 0; i < 3 + more; ++i) run.constant_step(0.3F + 0.1F * static_cast<float>(i));
  ASSERT_EQ(run.windows.size(), 2U);
}

TEST(LazyStateTest, ARunRestoredInMidWindowGoesOnWithTheSameBits) {
  for (int more = 0; more < 3; ++more) {
    World{2}.run([more](transport::World& world) {
      LazyRun run(world, sizes, options());
      LazyRun other(world, sizes, options());
      start(run, more);
      other.constant_step(5.0F);  // what it did before must not matter

      std::ranges::copy(run.arrays.parameters, other.arrays.parameters.begin());
      other.scheme->restore(run.scheme->save());
      EXPECT_EQ(other.scheme->save(), run.scheme->save());
      std::mt19937 noise(static_cast<unsigned>(world.rank()));
      std::mt19937 same = noise;
      for (int i = 0; i < 20; ++i) {
        run.noisy_step(noise);
        other.noisy_step(same);
      }

      // All but the steps' numbers, which the runs count on their own.
      run.scheme->flush();
      other.scheme->flush();
      EXPECT_EQ(other.scheme->save(), run.scheme->save());
      EXPECT_THAT(other.arrays.parameters, ElementsAreArray(run.arrays.parameters));
    });
  }
}

TEST(LazyStateTest, EvaluationAppliesTheWindowToTheCopyOnly) {
  for (int more = 0; more < 3; ++more) {
    World{2}.run([more](transport::World& world) {
      LazyRun run(world, sizes, options());
      start(run, more);
      const std::vector<float> before(run.arrays.parameters.begin(), run.arrays.parameters.end());
      std::vector<float> copy(before.size());

      run.scheme->copy_for_evaluation(copy, {});

      EXPECT_THAT(run.arrays.parameters, ElementsAreArray(before));
      EXPECT_EQ(run.scheme->counters().evaluation_reductions, more == 0 ? 0U : 1U);
      run.scheme->flush();
      EXPECT_THAT(run.arrays.parameters, ElementsAreArray(copy));
    });
  }
}

TEST(LazyStateTest, FlushAppliesTheWindowOnceAndLeavesTheInterval) {
  World{2}.run([](transport::World& world) {
    LazyRun run(world, sizes, options());
    start(run, 1);
    const SchemeCounters before = run.scheme->counters();

    run.scheme->flush();
    const std::vector<std::byte> flushed = run.scheme->save();
    run.scheme->flush();

    EXPECT_EQ(run.scheme->save(), flushed);
    EXPECT_EQ(run.scheme->counters().global_reductions, before.global_reductions + 1);
    EXPECT_EQ(run.scheme->counters().lazy_reductions, before.lazy_reductions + 1);
    EXPECT_EQ(run.scheme->counters().collectives, before.collectives + 1);
    EXPECT_EQ(run.scheme->counters().global_bytes, before.global_bytes + 80 * sizeof(float));
    EXPECT_EQ(run.windows.size(), 2U);
    for (int i = 0; i < 3; ++i) run.constant_step(1.0F);
    EXPECT_EQ(run.windows.back().iterations, 3) << "tau is what it was";
  });
}

TEST(LazyStateTest, RefusesTheStateOfAnotherModelAndKeepsItsOwn) {
  World{1}.run([](transport::World& world) {
    LazyRun run(world, sizes, options());
    start(run, 1);
    const std::vector<std::byte> before = run.scheme->save();
    LazyOptions others = options();
    others.lazy_layers = 3;
    LazyRun other(world, sizes, others);
    LazyRun longer(world, {50, 30, 61}, options());

    EXPECT_THROW(run.scheme->restore(other.scheme->save()), std::invalid_argument);
    EXPECT_THROW(run.scheme->restore(longer.scheme->save()), std::invalid_argument);
    EXPECT_THROW(run.scheme->restore(std::span(before).first(before.size() - 1)),
                 std::invalid_argument);

    EXPECT_EQ(run.scheme->save(), before);
  });
}

}  // namespace
}  // namespace rondo::sync::lazy_state_test
