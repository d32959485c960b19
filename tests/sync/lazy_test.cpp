// The lazy update over ranks that are threads: what it computes, sends and counts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/lazy_run.hpp"

namespace rondo::sync::lazy_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::LazyRun;
using testing::Contains;
using testing::ElementsAre;
using testing::ElementsAreArray;

/// The gradients of a rank and step: of no particular value.
void fill_noise(std::span<float> values, int rank, int step) {
  std::mt19937 generator(static_cast<unsigned>(rank * 1000 + step));
  std::normal_distribution<float> normal;
  std::ranges::generate(values, [&] { return normal(generator); });
}

const std::vector<std::size_t> layer_sizes{40, 3, 700, 0, 129, 500};
constexpr SgdOptions sgd{.momentum = 0.9F, .weight_decay = 0.01F};

/// Ten steps of noise; returns the parameters.
std::vector<float> train(transport::World& world, Arrays& arrays, UpdateScheme& scheme) {
  fill_noise(arrays.parameters, 0, 999);
  std::vector<float> noise(arrays.parameters.size());
  for (int step = 0; step < 10; ++step) {
    fill_noise(noise, world.rank(), step);
    test::iterate(scheme, arrays,
                  {.index = step, .local_samples = 1, .global_samples = 7, .learning_rate = 0.1},
                  [&](std::size_t i, float) { return noise[i]; });
  }
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

std::vector<float> train_lazily(transport::World& world, const LazyOptions& options) {
  Arrays arrays(world, layer_sizes);
  return train(world, arrays,
               *make_lazy(arrays.replica(), make_sgd(arrays.parameters.size(), sgd), options));
}

class LazyTest : public RanksTest {};

TEST_P(LazyTest, WithWindowsOfOneIsSynchronousBitForBit) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, layer_sizes);
    const std::vector<float> expected = train(
        world, arrays,
        *make_synchronous(arrays.replica(), make_sgd(arrays.parameters.size(), sgd), {512, 64}));

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

// Windows of 1, 2 and 3 iterations, and one that has begun. Gradients are 2 on each of up to 4
// ranks, so that all sums are numbers of bf16, in the tests of the controller as well.
TEST_P(LazyTest, InBf16ItDoesTheSameWhereSumsAreExact) {
  World{ranks()}.run([](transport::World& world) {
    LazyOptions options{.lazy_layers = 2, .probes = {{0, 40}, {110, 20}}, .max_interval = 3};
    LazyRun full(world, {100, 50, 70}, options);
    options.gradient_type = transport::ElementType::bf16;
    LazyRun half(world, {100, 50, 70}, options);
    for (LazyRun* const run : {&full, &half}) {
      for (int i = 0; i < 7; ++i) run->constant_step(2.0F);
      run->scheme->flush();
    }

    EXPECT_THAT(half.intervals(), ElementsAreArray(full.intervals()));
    EXPECT_THAT(half.arrays.parameters, ElementsAreArray(full.arrays.parameters));
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

// Gradients that do not change are those of synchronous SGD, whatever the windows.
TEST_P(LazyTest, UpdatesPerIterationOfAConstantGradientAreSynchronous) {
  World{ranks()}.run([](transport::World& world) {
    // The second layer is not lazy. Momenta and rates are powers of two: all values are exact.
    LazyRun run(world, {3, 3},
                {.lazy_layers = 1, .probes = {{0, 3}}, .updates_per_iteration = true},
                {.momentum = 0.5F, .weight_decay = 0.0F});
    for (int window = 1; window <= 4; ++window) {
      for (int i = 0; i < window; ++i) run.constant_step(2.0F);
      const auto parameters = std::span<const float>(run.arrays.parameters);
      EXPECT_THAT(parameters.first(3), ElementsAreArray(parameters.last(3)));
    }
    EXPECT_THAT(run.intervals(), ElementsAre(2, 3, 4, 5));
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

INSTANTIATE_TEST_SUITE_P(Threads, LazyTest, testing::Values(1, 2, 3, 4));

// After windows of 1 and 2 iterations, and one of three.
TEST(LazyWindowTest, FlushAppliesItOnceAndLeavesTheInterval) {
  World{2}.run([](transport::World& world) {
    LazyRun run(world, {50, 30, 60}, {.lazy_layers = 2, .probes = {{0, 40}, {50, 30}}});
    for (int i = 0; i < 4; ++i) run.constant_step(0.3F + 0.1F * static_cast<float>(i));
    ASSERT_EQ(run.windows.size(), 2U);
    const SchemeCounters before = run.scheme->counters();

    run.scheme->flush();

    const SchemeCounters added = run.scheme->counters() - before;
    EXPECT_EQ(added.lazy_reductions, 1U);
    EXPECT_EQ(added.collectives, 1U);
    EXPECT_EQ(added.global_bytes, 80 * sizeof(float));
    EXPECT_EQ(run.windows.size(), 2U);
    for (int i = 0; i < 3; ++i) run.constant_step(1.0F);
    EXPECT_EQ(run.windows.back().iterations, 3) << "tau is what it was";
  });
}

// Lazy updates where the ranks of a replica hold slices of the lazy layers.

constexpr int steps = 40;
constexpr std::size_t elements = 9;  // of the model: a layer of 1, of 6, and of 2 that is not lazy

/// Small whole numbers: all sums are exact. They turn back now and then.
float gradient(int step, int replica, std::size_t element) {
  const auto place = static_cast<int>(element);
  const int sign = (step / (3 + place % 3)) % 2 == 0 ? 1 : -1;
  return static_cast<float>(sign * (1 + (place * 5 + replica) % 4));
}

/// The part of the model that one rank of a position holds, element by element.
struct Held {
  std::vector<std::size_t> layer_sizes = {};
  std::vector<std::size_t> elements = {};
  std::vector<Slices::Part> counted = {};
  std::vector<Probe> probes = {};
};

/// The results of a rank at the end.
struct Result {
  std::vector<std::int64_t> intervals = {};
  std::vector<float> parameters = {};  // of the whole model; others' are 0
};

/// Trains two replicas, one rank for every entry of `held`; by rank.
std::vector<Result> train(const std::vector<Held>& held, LazyController controller) {
  const auto positions = static_cast<int>(held.size());
  std::vector<Result> results(2 * held.size());
  std::mutex mutex;
  World{2 * positions}.run([&](transport::World& world) {
    const int position = world.rank() % positions;
    const int replica_index = world.rank() / positions;
    const Held& mine = held[static_cast<std::size_t>(position)];
    transport::Communicator group = world.communicator().split(replica_index, position);
    transport::Communicator across = world.communicator().split(position, replica_index);
    Arrays arrays(world, mine.layer_sizes);
    Replica replica = arrays.replica();
    for (const std::size_t layer : {1U, 2U}) {
      if (positions > 1) replica.layers[layer].groups = {nullptr, &across, &across};
    }
    if (positions > 1) replica.slices = {&group, mine.counted};
    Result result;
    const auto scheme = make_lazy(replica, make_sgd(arrays.parameters.size(), {.momentum = 0.5F}),
                                  {.lazy_layers = 2,
                                   .probes = mine.probes,
                                   .controller = controller,
                                   .on_window = [&](const LazyWindow& window) {
                                     result.intervals.push_back(window.interval);
                                   }});
    for (int step = 0; step < steps; ++step) {
      scheme->begin(
          {.index = step, .local_samples = 1, .global_samples = 2, .learning_rate = 0.125});
      for (std::size_t i = 0; i < mine.elements.size(); ++i) {
        const float whole = gradient(step, replica_index, mine.elements[i]);
        const bool adds_up = mine.elements[i] == 0;  // the first rank of a replica has it all
        arrays.gradients[i] = adds_up && position > 0 ? 0.0F : whole;
      }
      for (std::size_t layer = 3; layer-- > 0;) scheme->gradients_final(layer);
      scheme->finish();
    }
    scheme->flush();
    result.parameters.assign(elements, 0.0F);
    for (std::size_t i = 0; i < mine.elements.size(); ++i) {
      result.parameters[mine.elements[i]] = arrays.parameters[i];
    }
    const std::lock_guard lock(mutex);
    results[static_cast<std::size_t>(world.rank())] = result;
  });
  return results;
}

Held whole_model() {
  return {.layer_sizes = {1, 6, 2},
          .elements = {0, 1, 2, 3, 4, 5, 6, 7, 8},
          .probes = {{0, 1}, {1, 4}}};
}

/// The probe's 4 elements lie 3 and 1, its layer's other two with the third rank.
std::vector<Held> slices() {
  return {{{1, 3, 0}, {0, 1, 2, 3}, {{0, 4}}, {{0, 1}, {1, 3}}},
          {{1, 1, 1}, {0, 4, 7}, {{1, 2}}, {{0, 1}, {1, 1}}},
          {{1, 2, 1}, {0, 5, 6, 8}, {{1, 3}}, {{0, 1}, {1, 0}}}};
}

class LazySlicesTest : public testing::TestWithParam<LazyController> {};

TEST_P(LazySlicesTest, AllRanksDecideAndUpdateAsIfTheyHeldTheModelWhole) {
  const Result whole = train({whole_model()}, GetParam()).front();
  ASSERT_THAT(whole.intervals, Contains(2)) << "or nothing is tested";
  const std::vector<Held> held = slices();
  const std::vector<Result> results = train(held, GetParam());

  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].intervals, whole.intervals);
    for (const std::size_t element : held[rank % held.size()].elements) {
      EXPECT_EQ(results[rank].parameters[element], whole.parameters[element]);
      EXPECT_NE(whole.parameters[element], 0.0F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Controllers, LazySlicesTest,
                         testing::Values(LazyController::probe, LazyController::every_layer));

// Which layers' reductions backward cannot hide: a pure function of measured times.

using Seconds = std::vector<double>;

struct Timed {
  const char* what;
  Seconds left;  ///< of backward, when a layer's gradients are final
  Seconds reduction;
  std::size_t unhidden;
};

TEST(UnhiddenLayersTest, AreThoseWhoseReductionsOutlastBackward) {
  const std::vector<Timed> table = {
      {"no layers", {}, {}, 0},
      {"the first layer cannot hide a reduction", {0, 10, 20}, {1, 1, 1}, 1},
      {"reductions that take no time", {0, 10, 20}, {0, 0, 0}, 0},
      {"reductions that end with backward", {0, 10, 20}, {1, 10, 10}, 1},
      {"one that outlasts backward", {0, 10, 20}, {1, 11, 1}, 2},
      // Layer 2 is final at -20 and reduced until -5; only then can layer 1 be, until +3.
      {"one that waits for that before it", {0, 10, 20}, {1, 8, 15}, 2},
      {"nothing is hidden", {0, 1, 2}, {1, 1, 100}, 3}};
  for (const Timed& row : table) {
    EXPECT_EQ(count_unhidden_layers(row.left, row.reduction), row.unhidden) << row.what;
  }
}

// A lazy layer is not reduced in the iteration, so it delays no layer that is.
TEST(UnhiddenLayersTest, MoreTimeForReductionsNeverHidesMore) {
  const Seconds left{0, 1, 3, 6, 10};
  std::size_t least = 0;
  for (double seconds = 0.0; seconds < 12.0; seconds += 0.5) {
    const std::size_t count = count_unhidden_layers(left, Seconds(5, seconds));

    EXPECT_GE(count, least) << seconds;
    least = count;
  }
  EXPECT_EQ(least, 5U);
}

TEST(UnhiddenLayersTest, RefusesTimesThatDoNotFit) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_THROW(static_cast<void>(count_unhidden_layers(Seconds{1}, Seconds{1, 2})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(count_unhidden_layers(Seconds{1}, Seconds{-1})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(count_unhidden_layers(Seconds{nan}, Seconds{1})),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::sync::lazy_test
