// The lazy update over ranks that are threads: what it computes, sends and counts.

#include <rondo/sync/lazy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"
#include "sync/lazy_run.hpp"

namespace rondo::sync::lazy_test {
namespace {

using rondo::test::World;
using test::Arrays;
using test::LazyRun;
using testing::ElementsAre;
using testing::ElementsAreArray;

/// The gradients of a rank and step: of no particular value.
void fill_noise(std::span<float> values, int rank, int step) {
  std::mt19937 generator(static_cast<unsigned>(rank * 1000 + step));
  std::normal_distribution<float> normal;
  std::ranges::generate(values, [&] { return normal(generator); });
}

/// Ten steps of noise; returns the parameters.
std::vector<float> train(transport::World& world, Arrays& arrays, UpdateScheme& scheme,
                         const std::vector<std::size_t>& order) {
  fill_noise(arrays.parameters, 0, 999);
  for (int step = 0; step < 10; ++step) {
    scheme.begin({.index = step, .local_samples = 1, .global_samples = 7, .learning_rate = 0.1});
    fill_noise(arrays.gradients, world.rank(), step);
    for (const std::size_t layer : order) {
      scheme.gradients_final(layer);
      world.progress();
    }
    scheme.finish();
  }
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

const std::vector<std::size_t> layer_sizes{40, 3, 700, 0, 129, 500};
const std::vector<std::size_t> backward{5, 4, 3, 2, 1, 0};
constexpr SgdOptions sgd{.momentum = 0.9F, .weight_decay = 0.01F};

std::vector<float> train_lazily(transport::World& world, const LazyOptions& options,
                                const std::vector<std::size_t>& order = backward) {
  Arrays arrays(world, layer_sizes);
  return train(world, arrays,
               *make_lazy(arrays.replica(), make_sgd(arrays.parameters.size(), sgd), options),
               order);
}

class LazyTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static int ranks() { return GetParam(); }
};

TEST_P(LazyTest, WithWindowsOfOneIsSynchronousBitForBit) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, layer_sizes);
    const std::vector<float> expected = train(
        world, arrays,
        *make_synchronous(arrays.replica(), make_sgd(arrays.parameters.size(), sgd), {512, 64}),
        backward);

    for (const std::size_t lazy_layers : {1U, 3U, 6U}) {
      EXPECT_THAT(train_lazily(world, {.lazy_layers = lazy_layers,
                                       .probes = {{5, 20}},
                                       .max_interval = 1,
                                       .bucket_bytes = 512}),
                  ElementsAreArray(expected));
    }
    EXPECT_THAT(train_lazily(world, {.lazy_layers = 0}), ElementsAreArray(expected));
  });
}

TEST_P(LazyTest, DoesNotDependOnTheOrderInWhichLayersBecomeFinal) {
  World{ranks()}.run([](transport::World& world) {
    const LazyOptions options{.lazy_layers = 3, .probes = {{50, 600}}, .bucket_bytes = 512};
    std::vector<std::size_t> order = backward;
    std::ranges::rotate(order, order.begin() + world.rank() % 4);  // not the same on all ranks

    const std::vector<float> expected = train_lazily(world, options);

    EXPECT_THAT(train_lazily(world, options, order), ElementsAreArray(expected));
  });
}

// Two windows of one scalar, lazy, beside one that is not; gradients are 2 on average and differ
// from rank to rank. All values are exact in fp32.
TEST_P(LazyTest, FollowsAScalarModelWorkedOutByHand) {
  World{ranks()}.run([](transport::World& world) {
    LazyRun run(world, {1, 1}, {.lazy_layers = 1, .probes = {{0, 1}}});
    std::ranges::fill(run.arrays.parameters, 8.0F);
    const float away = static_cast<float>(2 * world.rank() - world.size() + 1);  // 0 in the mean
    const auto gradient = [away](std::size_t) { return 2.0F + away; };

    run.step(gradient, 0.5);  // v = 0.5*0 + (2 + 8/4) = 4;  w = 8 - 4/2
    EXPECT_THAT(run.arrays.parameters, ElementsAre(6.0F, 6.0F));

    run.step(gradient, 0.25);  // the other: v = 4/2 + (2 + 6/4) = 5.5;  w = 6 - 5.5/4
    EXPECT_THAT(run.arrays.parameters, ElementsAre(6.0F, 4.625F));

    run.step(gradient, 0.5);  // v = 4/2 + (2 + 2 + 6/4) = 7.5;  w = 6 - 7.5/2
    EXPECT_EQ(run.arrays.parameters[0], 2.25F);
    EXPECT_THAT(run.intervals(), ElementsAre(2, 3));
  });
}

// Steps of 1 and 3 samples: (2 + 6) * 2/4, and not 2/1 + 6/3 by chance: the mean per sample is 2.
TEST(LazyWindowTest, WeighsUnequalBatchesByTheirSamples) {
  World{1}.run([](transport::World& world) {
    Arrays arrays(world, {1});
    const auto scheme = make_lazy(arrays.replica(), make_sgd(1, {.momentum = 0.0F}),
                                  {.lazy_layers = 1, .probes = {{0, 1}}});
    std::int64_t index = 0;
    for (const auto& [gradient, samples] : {std::pair(0.0F, 1U), {1.0F, 1U}, {7.0F, 3U}}) {
      scheme->begin({.index = index++, .global_samples = samples, .learning_rate = 1.0});
      arrays.gradients[0] = gradient;
      scheme->gradients_final(0);
      scheme->finish();
    }

    EXPECT_EQ(arrays.parameters[0], -4.0F);
  });
}

TEST_P(LazyTest, AllRanksDecideAlikeAndHoldTheSameBits) {
  for (const LazyController controller : {LazyController::probe, LazyController::every_layer}) {
    World{ranks()}.run([controller](transport::World& world) {
      LazyRun run(world, {300, 200, 100},
                  {.lazy_layers = 2, .probes = {{0, 200}, {300, 200}}, .controller = controller});
      std::mt19937 generator(static_cast<unsigned>(world.rank()));
      for (int i = 0; i < 60; ++i) run.noisy_step(generator);

      std::vector<std::int64_t> mine = run.intervals();
      std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
      world.communicator().allgather(mine, std::span(all)).wait();
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], mine[i % mine.size()]);
      std::vector<float> models(600U * static_cast<std::size_t>(world.size()));
      world.communicator().allgather(run.scheme->replicated().at(0), std::span(models)).wait();
      for (std::size_t i = 0; i < models.size(); ++i) {
        ASSERT_EQ(models[i], run.arrays.parameters[i % 600]);
      }
    });
  }
}

// Windows of 1, 2, 3 and 3 iterations; arrays that are long enough to be cut among the ranks.
TEST_P(LazyTest, BytesAndCollectivesEqualTheClosedForm) {
  World{ranks()}.run([](transport::World& world) {
    LazyRun run(world, {10'000, 5'000, 20'000},
                {.lazy_layers = 2, .probes = {{0, 4'000}, {10'000, 5'000}}, .max_interval = 3});

    for (int i = 0; i < 9; ++i) run.constant_step(1.0F);

    const SchemeCounters counters = run.scheme->counters();
    const std::uint64_t met = world.size() == 1 ? 0 : 1;
    const std::uint64_t bytes = met * 4 * (9 * 20'000 + 4 * 15'000 + 3 * 5'000);
    EXPECT_THAT(run.intervals(), ElementsAre(2, 3, 3, 3));
    EXPECT_EQ(counters.global_reductions, met * 9);
    EXPECT_EQ(counters.lazy_reductions, met * 4);
    EXPECT_EQ(counters.collectives, met * (9 + 4 + 3));
    EXPECT_EQ(counters.global_bytes, bytes);
    EXPECT_EQ(world.counters().operations, counters.collectives);
    std::vector<std::int64_t> moved{static_cast<std::int64_t>(world.counters().moved_bytes())};
    world.communicator().allreduce(std::span(moved)).wait();
    EXPECT_EQ(moved[0], 2 * (world.size() - 1) * static_cast<std::int64_t>(bytes));
  });
}

TEST_P(LazyTest, EveryLayerReducesAllProbesAtOnce) {
  World{ranks()}.run([](transport::World& world) {
    LazyRun run(world, {100, 50},
                {.lazy_layers = 2,
                 .probes = {{0, 40}, {110, 20}},
                 .controller = LazyController::every_layer,
                 .max_interval = 2});

    for (int i = 0; i < 5; ++i) run.constant_step(1.0F);  // windows of 1, 2 and 2

    const std::uint64_t met = world.size() == 1 ? 0 : 1;
    EXPECT_EQ(run.scheme->counters().global_reductions, met * 3);
    EXPECT_EQ(run.scheme->counters().lazy_reductions, met * 3);
    EXPECT_EQ(run.scheme->counters().collectives, met * (3 + 2));
    EXPECT_EQ(run.scheme->counters().global_bytes, met * 4 * (3 * 150 + 2 * 60));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, LazyTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace rondo::sync::lazy_test
