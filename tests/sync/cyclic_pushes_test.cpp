// How much a push weighs: gradients, weight decay and clipping must not depend on how many
// mini-batches the workers managed between their turns.

#include <array>
#include <cstddef>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_pushes_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::Arrays;
using test::CyclicPlace;
using test::CyclicWorker;
using test::iterate;

constexpr int pair = 2;         // workers
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
  std::array<std::size_t, pair> count = {2, 2};  // of a mini-batch, by worker
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
  World{pair}.run([&](transport::World& world) {
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

// Cyclic delayed updates where a worker is several ranks, each with a part of the model.

constexpr SgdOptions sgd{.momentum = 0.5F, .weight_decay = 0.0F};

/// The results of a worker of two ranks: the turns that each of them records, and both halves.
struct Done {
  std::vector<Turn> turns[2] = {};
  std::vector<float> parameters[2] = {};
};

/// Three epochs of so many workers of two ranks, which hold the first 5 and the last 3 elements.
std::vector<Done> train_halves(Backend backend, int workers, const CyclicOptions& options) {
  std::vector<Done> done(static_cast<std::size_t>(workers));
  World{backend, 2 * workers}.run([&](transport::World& world) {
    const int half = world.rank() % 2;
    const int worker_index = world.rank() / 2;
    transport::Communicator group = world.communicator().split(worker_index, half);
    transport::Communicator across = world.communicator().split(half, worker_index);
    const CyclicPlace place{
        .worker = worker_index,
        .first = half == 0 ? 0U : 5U,
        .layers = half == 0 ? std::vector<std::size_t>{4, 1} : std::vector<std::size_t>{0, 3},
        .across = &across,
        .group = &group};
    CyclicWorker worker(world, options, sgd, place);
    for (int epoch = 0; epoch < 3; ++epoch) worker.compute_until_parked();
    worker.scheme->flush();
    Done& mine = done[static_cast<std::size_t>(worker_index)];
    mine.turns[half] = worker.turns();
    mine.parameters[half] = worker.parameters();
  });
  return done;
}

/// The same turns, taken by workers that hold the whole model.
std::vector<float> train_whole(const std::vector<Done>& done, CyclicOptions options) {
  for (const Done& worker : done) {
    options.script.insert(options.script.end(), worker.turns[0].begin(), worker.turns[0].end());
  }
  std::vector<float> parameters;
  World{static_cast<int>(done.size())}.run([&](transport::World& world) {
    CyclicWorker worker(world, options, sgd);
    for (int epoch = 0; epoch < 3; ++epoch) worker.compute_until_parked();
    worker.scheme->flush();
    if (world.rank() == 0) parameters = worker.parameters();
  });
  return parameters;
}

class CyclicSlicesTest : public testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  static void expect_whole_workers_turns(const CyclicOptions& options) {
    const auto [backend, workers] = GetParam();
    const std::vector<Done> done = train_halves(backend, workers, options);
    const std::vector<float> whole = train_whole(done, options);

    for (const Done& worker : done) {
      EXPECT_EQ(worker.turns[1], worker.turns[0]);
      std::vector<float> both = worker.parameters[0];
      both.insert(both.end(), worker.parameters[1].begin(), worker.parameters[1].end());
      EXPECT_THAT(both, testing::Pointwise(testing::FloatNear(1e-4F), whole));
    }
  }
};

TEST_P(CyclicSlicesTest, DynamicDelayIsThatOfWorkersOfOneRank) {
  expect_whole_workers_turns({.epoch_samples = 60, .total_samples = 180});
}

TEST_P(CyclicSlicesTest, SoAreSkipsAndTheCap) {
  expect_whole_workers_turns({.minibatch_cap = 2,
                              .when_empty = WhenEmpty::skip,
                              .epoch_samples = 60,
                              .total_samples = 180});
}

TEST_P(CyclicSlicesTest, SoIsTheNormOfWhatIsPushed) {
  expect_whole_workers_turns({.clip_norm = 0.5, .epoch_samples = 60, .total_samples = 180});
}

INSTANTIATE_TEST_SUITE_P(Shm, CyclicSlicesTest,
                         testing::Combine(testing::Values(Backend::shm), testing::Values(1, 2, 3)));
INSTANTIATE_TEST_SUITE_P(Nodes, CyclicSlicesTest,
                         testing::Combine(testing::Values(Backend::shm_nodes, Backend::hierarchy),
                                          testing::Values(2)));

}  // namespace
}  // namespace rondo::sync::cyclic_pushes_test
