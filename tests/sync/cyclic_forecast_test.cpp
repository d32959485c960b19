// The turns that the clocks of cyclic workers make, and how many mini-batches workers do by them.

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/transport/world.hpp>

#include "support/cyclic_forecast.hpp"
#include "support/world.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_forecast_test {
namespace {

using test::CyclicForecast;
using test::CyclicWorkload;
using test::forecast;
using testing::ElementsAre;

/// Three workers take 1, the fourth 4.
CyclicWorkload one_slow_worker(Delay delay) {
  return {.workers = 4,
          .duration = [](int worker, std::int64_t) { return worker == 3 ? 4.0 : 1.0; },
          .delay = delay};
}

std::int64_t minibatches_until(Delay delay, double end) {
  const CyclicForecast played = forecast(one_slow_worker(delay), end);
  return std::accumulate(played.minibatches.begin(), played.minibatches.end(), std::int64_t{0});
}

TEST(CyclicForecastTest, DynamicDelayDoes13WhereFixedDelayDoes4) {
  const auto rate = [](Delay delay) {
    return minibatches_until(delay, 408.5) - minibatches_until(delay, 8.5);
  };

  EXPECT_EQ(rate(Delay::fixed), 400);
  EXPECT_EQ(rate(Delay::dynamic), 1300);  // 3.25 times as many
}

TEST(CyclicForecastTest, ACapHoldsAWorkerUntilTheTokenComes) {
  CyclicWorkload workload = one_slow_worker(Delay::dynamic);
  workload.minibatch_cap = 2;

  EXPECT_THAT(forecast(workload, 8.5).minibatches, ElementsAre(5, 5, 5, 2));
}

TEST(CyclicForecastTest, TurnsTakeTime) {
  CyclicWorkload workload{.workers = 2, .duration = [](int, std::int64_t) { return 1.0; }};
  workload.pass_duration = 0.25;

  EXPECT_THAT(forecast(workload, 3.0).times, ElementsAre(1.0, 2.0, 2.25));
}

// A run that follows such a script parks where it says, and what is computed between is what it
// says; a turn that came otherwise would throw.
TEST(CyclicForecastTest, ARunParksWhereItsForecastDoes) {
  for (const Delay delay : {Delay::fixed, Delay::dynamic}) {
    CyclicWorkload workload = one_slow_worker(delay);
    workload.minibatch_samples = test::CyclicWorker::samples;
    workload.epoch_samples = 50;
    workload.total_samples = 150;
    const std::vector<Turn> turns = forecast(workload, 1e9).turns;
    rondo::test::World{4}.run([&](transport::World& world) {
      test::CyclicWorker worker(
          world, {.delay = delay, .epoch_samples = 50, .total_samples = 150, .script = turns});

      for (int epoch = 0; epoch < 3; ++epoch) worker.compute_until_parked();

      std::vector<Turn> mine;
      for (const Turn& turn : turns) {
        if (turn.worker == world.rank()) mine.push_back(turn);
      }
      EXPECT_EQ(worker.turns(), mine);
      worker.scheme->flush();
    });
  }
}

}  // namespace
}  // namespace rondo::sync::cyclic_forecast_test
