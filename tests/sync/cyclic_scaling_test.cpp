// How much a push weighs: gradients, weight decay and clipping must not depend on how many
// mini-batches the workers managed between their turns.

#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::cyclic_scaling_test {
namespace {

using rondo::test::World;
using test::Arrays;
using test::iterate;

constexpr int workers = 2;
constexpr int minibatches = 4;  // of each worker
constexpr double rate = 0.125;

/// Every worker computes 4 mini-batches in each of them.
const std::vector<std::vector<Turn>> timings{
    {{.worker = 0, .minibatches = 1},
     {.worker = 1, .minibatches = 1},
     {.worker = 0, .minibatches = 1},
     {.worker = 1, .minibatches = 1},
     {.worker = 0, .minibatches = 1},
     {.worker = 1, .minibatches = 1},
     {.worker = 0, .minibatches = 1},
     {.worker = 1, .minibatches = 1}},
    {{.worker = 0, .minibatches = 4}, {.worker = 1, .minibatches = 4}},
    {{.worker = 0, .minibatches = 1},
     {.worker = 1, .minibatches = 3},
     {.worker = 0, .minibatches = 3},
     {.worker = 1, .minibatches = 1}},
};

/// Samples whose gradients depend on worker and mini-batch, and not on the parameter.
struct Samples {
  std::array<std::size_t, workers> count = {2, 2};  // of a mini-batch, by worker
  float slope = 1.0F;

  [[nodiscard]] Step step_of(const transport::World& world, int index) const {
    return {.index = index,
            .local_samples = count[static_cast<std::size_t>(world.rank())],
            .global_samples = count[0] + count[1],
            .learning_rate = rate};
  }
  [[nodiscard]] float gradient_sum(const transport::World& world, int index) const {
    const auto of_this = static_cast<float>(count[static_cast<std::size_t>(world.rank())]);
    return of_this * slope * static_cast<float>(8 * world.rank() + index + 1);
  }
};

/// The parameter after 4 mini-batches of each worker, from 1.
float train(const Samples& samples, const CyclicOptions& options, const SgdOptions& sgd,
            bool synchronous = false) {
  float result = 0.0F;
  World{workers}.run([&](transport::World& world) {
    Arrays arrays(world, {1});
    arrays.parameters[0] = 1.0F;
    const auto scheme = synchronous ? make_synchronous(arrays.replica(), make_sgd(1, sgd))
                                    : make_cyclic(arrays.replica(), make_sgd(1, sgd), options);
    for (int i = 0; i < minibatches; ++i) {
      iterate(*scheme, arrays, samples.step_of(world, i),
              [&](std::size_t, float) { return samples.gradient_sum(world, i); });
    }
    scheme->flush();
    if (world.rank() == 0) result = arrays.parameters[0];
  });
  return result;
}

constexpr SgdOptions plain{.momentum = 0.0F, .weight_decay = 0.0F};

TEST(CyclicScalingTest, ASampleWeighsAsInASynchronousStepWhateverTheTiming) {
  for (const Samples& samples : {Samples{}, Samples{.count = {1, 3}}}) {
    const float synchronous = train(samples, {}, plain, true);
    for (const std::vector<Turn>& turns : timings) {
      EXPECT_EQ(train(samples, {.script = turns}, plain), synchronous)
          << samples.count[0] << " samples, " << turns.size() << " turns";
    }
  }
}

TEST(CyclicScalingTest, AMeanIsOneStepAndASumOnePerMinibatch) {
  const std::vector<Turn>& turns = timings[1];  // of 4 each
  const float first = (1.0F + 2.0F + 3.0F + 4.0F) / 4.0F;
  const float second = first + 8.0F;

  EXPECT_EQ(train({}, {.scaling = PushScaling::mean, .script = turns}, plain),
            1.0F - 0.125F * (first + second));
  EXPECT_EQ(train({}, {.scaling = PushScaling::sum, .script = turns}, plain),
            1.0F - 0.125F * 4.0F * (first + second));
}

TEST(CyclicScalingTest, WeightDecayDoesNotDependOnTheTiming) {
  constexpr SgdOptions decaying{.momentum = 0.0F, .weight_decay = 1.0F / 64};
  constexpr double decay = 4.0 * rate / 64;  // of four global batches
  for (const std::vector<Turn>& turns : timings) {
    EXPECT_NEAR(train({.slope = 0.0F}, {.script = turns}, decaying), 1.0 - decay, decay * decay)
        << turns.size() << " turns";
  }
}

TEST(CyclicScalingTest, WeightDecayIsTheBatchesPartInAPush) {
  constexpr SgdOptions decaying{.momentum = 0.0F, .weight_decay = 1.0F};
  const auto after_turns_of_four = [&](PushScaling scaling) {
    return train({.slope = 0.0F}, {.scaling = scaling, .script = timings[1]}, decaying);
  };

  EXPECT_EQ(after_turns_of_four(PushScaling::per_sample), 0.75F * 0.75F);  // 4/2 batches each
  EXPECT_EQ(after_turns_of_four(PushScaling::mean), 0.875F * 0.875F);
  EXPECT_EQ(after_turns_of_four(PushScaling::sum), 0.5F * 0.5F);
}

// Mean gradients are 2.5 and 10.5 long: both become 1.
TEST(CyclicScalingTest, WhatIsClippedIsTheMeanGradientOfAPush) {
  const auto moved_by = [](PushScaling scaling, double clip_norm) {
    return 1.0F -
           train({}, {.scaling = scaling, .clip_norm = clip_norm, .script = timings[1]}, plain);
  };

  EXPECT_FLOAT_EQ(moved_by(PushScaling::mean, 1.0), 0.125F * 2.0F);
  EXPECT_FLOAT_EQ(moved_by(PushScaling::per_sample, 1.0), 0.125F * 4.0F);
  EXPECT_FLOAT_EQ(moved_by(PushScaling::sum, 1.0), 0.125F * 8.0F);
  EXPECT_EQ(moved_by(PushScaling::per_sample, 11.0), 0.125F * 2.0F * 13.0F);  // none is longer
}

}  // namespace
}  // namespace rondo::sync::cyclic_scaling_test
