// Cyclic delayed updates over ranks that are threads: what they compute, and what they count.

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::CyclicModel;
using test::CyclicWorker;
using testing::Each;
using testing::ElementsAreArray;
using testing::Field;

/// A trace of `rounds` turns of each worker, who has computed `c` mini-batches for its turn.
template <typename Count>
std::vector<Turn> trace_of(int workers, int rounds, Count c) {
  std::vector<Turn> turns;
  for (int round = 0; round < rounds; ++round) {
    for (int worker = 0; worker < workers; ++worker) {
      turns.push_back({.worker = worker, .minibatches = c(worker, round)});
    }
  }
  return turns;
}

int minibatches_of(std::span<const Turn> turns, int worker) {
  int sum = 0;
  for (const Turn& turn : turns) {
    if (turn.worker == worker && turn.kind == Turn::Kind::push) sum += turn.minibatches;
  }
  return sum;
}

std::vector<float> model_of(std::span<const Turn> turns, int workers, PushScaling scaling) {
  CyclicModel model(workers, scaling);
  for (const Turn& turn : turns) model.turn(turn);
  return model.store();
}

/// The model while all are parked. Collective.
std::vector<float> evaluated(CyclicWorker& worker) {
  std::vector<float> parameters(8);
  std::vector<float> statistics(1);
  worker.scheme->copy_for_evaluation(parameters, statistics);
  return parameters;
}

CyclicOptions epochs_of(std::int64_t samples, std::int64_t epochs, Delay delay) {
  return {.delay = delay, .epoch_samples = samples, .total_samples = samples * epochs};
}

/// The record of a run: each worker's turns, the model at the end of each epoch, and what a flush
/// leaves.
struct Record {
  std::vector<std::vector<Turn>> turns = {};
  std::vector<std::vector<float>> models = {};
  std::vector<float> flushed = {};
};

/// A run of two epochs of 60 samples, which is flushed at its end.
Record record_of(World team, int ranks, Delay delay) {
  Record record{.turns = std::vector<std::vector<Turn>>(static_cast<std::size_t>(ranks))};
  team.run([&](transport::World& world) {
    CyclicWorker worker(world, epochs_of(60, 2, delay));
    for (int epoch = 0; epoch < 2; ++epoch) {
      worker.compute_until_parked();
      const std::vector<float> model = evaluated(worker);
      if (world.rank() == 0) record.models.push_back(model);
    }
    EXPECT_THAT(worker.pushes, Each(Field(&Push::by_flush, false)));
    const auto before = static_cast<std::ptrdiff_t>(worker.pushes.size());
    worker.scheme->flush();
    const std::vector<Push> flushed(worker.pushes.begin() + before, worker.pushes.end());
    EXPECT_THAT(flushed, Each(Field(&Push::by_flush, true)));
    record.turns[static_cast<std::size_t>(world.rank())] = worker.turns();
    if (world.rank() == 0) record.flushed = worker.parameters();
  });
  return record;
}

// A script may have it wait for more, which never come.
TEST(CyclicAloneTest, AFlushPushesWhatIsPending) {
  const std::vector<Turn> turns{{.worker = 0, .minibatches = 2}};
  World{1}.run([&](transport::World& world) {
    CyclicWorker worker(world, {.script = {{.worker = 0, .minibatches = 3}}});
    worker.compute_minibatches(2);
    worker.scheme->flush();
    EXPECT_EQ(worker.parameters(), model_of(turns, 1, PushScaling::per_sample));
    EXPECT_EQ(worker.turns(), turns);
  });
}

class CyclicTest : public testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  [[nodiscard]] static World world() { return {std::get<0>(GetParam()), ranks()}; }
  [[nodiscard]] static int ranks() { return std::get<1>(GetParam()); }
};

TEST_P(CyclicTest, FixedDelayIsRoundRobinWithOneMinibatchPerTurn) {
  const std::vector<Turn> turns = trace_of(ranks(), 5, [](int, int) { return 1; });
  const auto expected = model_of(turns, ranks(), PushScaling::per_sample);
  world().run([&](transport::World& world) {
    CyclicWorker worker(world, {.delay = Delay::fixed});

    worker.compute_minibatches(5);
    worker.scheme->flush();

    EXPECT_EQ(worker.parameters(), expected);
    EXPECT_THAT(worker.pushes,
                Each(Field(&Push::turn, Turn{.worker = world.rank(), .minibatches = 1})));
    for (std::size_t turn = 1; turn < 5; ++turn) {
      EXPECT_EQ(worker.pushes[turn].staleness, ranks() - 1);
    }
  });
}

TEST_P(CyclicTest, AScriptGivesTheParametersThatItsTurnsDo) {
  const auto turns =
      trace_of(ranks(), 4, [](int worker, int round) { return 1 << ((worker + round) % 3); });
  for (const PushScaling scaling : {PushScaling::per_sample, PushScaling::mean, PushScaling::sum}) {
    const auto expected = model_of(turns, ranks(), scaling);
    world().run([&](transport::World& world) {
      CyclicWorker worker(world, {.scaling = scaling, .script = turns});

      worker.compute_minibatches(minibatches_of(turns, world.rank()));
      worker.scheme->flush();

      EXPECT_THAT(worker.parameters(), testing::Pointwise(testing::FloatEq(), expected));
    });
  }
}

// Replays may end earlier than the recorded run, with it, or later. The script has the pushes of
// its flush, as traces of older versions have them.
TEST_P(CyclicTest, ARecordedRunReplaysWithTheSameBits) {
  for (const Delay delay : {Delay::fixed, Delay::dynamic}) {
    const Record recorded = record_of(world(), ranks(), delay);
    for (const std::size_t epochs : {1U, 2U, 3U}) {
      CyclicOptions scripted = epochs_of(60, static_cast<std::int64_t>(epochs), delay);
      for (const std::vector<Turn>& turns : recorded.turns) {
        scripted.script.insert(scripted.script.end(), turns.begin(), turns.end());
      }
      world().run([&](transport::World& world) {
        CyclicWorker worker(world, scripted);
        for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
          worker.compute_until_parked();
          const std::vector<float> model = evaluated(worker);
          if (epoch >= recorded.models.size()) continue;
          EXPECT_EQ(model, recorded.models[epoch]) << epoch;
        }
        worker.scheme->flush();
        if (epochs != recorded.models.size()) return;
        EXPECT_EQ(worker.turns(), recorded.turns[static_cast<std::size_t>(world.rank())]);
        EXPECT_EQ(worker.parameters(), recorded.flushed);
      });
    }
  }
}

TEST_P(CyclicTest, CountsWhatIsPushedAndPulled) {
  world().run([&](transport::World& world) {
    CyclicWorker worker(world, {.delay = Delay::fixed, .epoch_samples = 8 * ranks()});

    worker.compute_until_parked();

    const int next = (world.rank() + 1) % ranks();
    const bool far = world.ranks()[static_cast<std::size_t>(next)].node !=
                     world.ranks()[static_cast<std::size_t>(world.rank())].node;
    const SchemeCounters counters = worker.scheme->counters();
    const std::uint64_t pushes = ranks() == 1 ? 0 : 4;
    EXPECT_EQ(counters.global_reductions, pushes);
    EXPECT_EQ(counters.global_bytes, pushes * 2 * 8 * sizeof(float));
    EXPECT_EQ(counters.collectives, pushes * (far ? 2 : 1));
    EXPECT_EQ(counters.local_reductions, 0U);
    EXPECT_EQ(counters.local_bytes, 0U);
  });
}

TEST_P(CyclicTest, ParksAtTheEndOfAnEpochAndGoesOn) {
  world().run([&](transport::World& world) {
    CyclicWorker worker(world, {.epoch_samples = 20});
    worker.arrays.statistics[0] = static_cast<float>(world.rank());
    std::int64_t previous = 0;
    for (int epoch = 1; epoch <= 3; ++epoch) {
      worker.compute_until_parked();

      const std::int64_t samples = worker.scheme->pace()->samples;
      EXPECT_GE(samples / 20, previous / 20 + 1);
      previous = samples;
      std::vector<float> copy(8);
      std::vector<float> statistics(1);
      worker.scheme->copy_for_evaluation(copy, statistics);
      EXPECT_EQ(statistics[0], static_cast<float>(world.size() - 1) / 2.0F);
      std::vector<float> all(8 * static_cast<std::size_t>(world.size()));
      world.communicator().allgather(copy, std::span(all)).wait();
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], copy[i % 8]);
    }
  });
}

TEST_P(CyclicTest, WaitsAtTheCap) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, {.minibatch_cap = 2, .epoch_samples = 200});

    worker.compute_until_parked();

    for (const Push& push : worker.pushes) EXPECT_LE(push.turn.minibatches, 2);
  });
}

TEST_P(CyclicTest, ATokenThatFindsNothingMayPass) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, {.when_empty = WhenEmpty::skip, .epoch_samples = 200});

    worker.compute_until_parked();
    worker.scheme->flush();

    std::vector<float> all(8 * static_cast<std::size_t>(world.size()));
    world.communicator().allgather(worker.parameters(), std::span(all)).wait();
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], worker.parameters()[i % 8]);
  });
}

TEST_P(CyclicTest, ScriptedSkipsPassTheTokenUnused) {
  std::vector<Turn> turns = trace_of(ranks(), 3, [](int, int) { return 1; });
  if (ranks() > 1) turns[1] = {.kind = Turn::Kind::skip, .worker = 1, .minibatches = 0};
  const auto expected = model_of(turns, ranks(), PushScaling::per_sample);
  world().run([&](transport::World& world) {
    CyclicWorker worker(world, {.when_empty = WhenEmpty::skip, .script = turns});

    worker.compute_minibatches(minibatches_of(turns, world.rank()));
    worker.scheme->flush();

    EXPECT_EQ(worker.parameters(), expected);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, CyclicTest,
                         testing::Combine(testing::Values(Backend::shm),
                                          testing::Values(1, 2, 3, 4)));
INSTANTIATE_TEST_SUITE_P(Nodes, CyclicTest,
                         testing::Combine(testing::Values(Backend::shm_nodes, Backend::hierarchy),
                                          testing::Values(2, 3, 4)));

/// Steps `scheme` over `arrays` as CyclicWorker does.
void step(UpdateScheme& scheme, test::Arrays& arrays, int index) {
  transport::World& world = arrays.world();
  test::iterate(
      scheme, arrays,
      test::step_of(world, index, {.samples = CyclicWorker::samples, .rate = CyclicWorker::rate}),
      [&](std::size_t i, float w) {
        return 2.0F * CyclicWorker::gradient_of(world.rank(), index, w, i);
      });
}

TEST(CyclicAloneTest, IsPlainSgd) {
  World{1}.run([](transport::World& world) {
    constexpr SgdOptions sgd{.momentum = 0.9F, .weight_decay = 0.1F};
    CyclicWorker worker(world, {.delay = Delay::dynamic}, sgd);
    test::Arrays arrays(world, {5, 3}, 1);
    const auto plain = make_synchronous(arrays.replica(), make_sgd(8, sgd));

    for (int k = 0; k < 7; ++k) {
      step(*plain, arrays, k);
      worker.compute_minibatch();

      EXPECT_THAT(worker.arrays.parameters, ElementsAreArray(arrays.parameters));
    }
  });
}

TEST(CyclicAloneTest, AFlushChangesNothing) {
  World{1}.run([](transport::World& world) {
    CyclicWorker worker(world, {.scaling = PushScaling::mean});
    CyclicWorker flushed(world, {.scaling = PushScaling::mean});
    worker.compute_minibatches(5);
    flushed.compute_minibatches(5);

    flushed.scheme->flush();
    EXPECT_EQ(flushed.scheme->pace()->samples, worker.scheme->pace()->samples);
    worker.compute_minibatches(3);
    flushed.compute_minibatches(3);

    EXPECT_EQ(flushed.parameters(), worker.parameters());
  });
}

TEST(CyclicLocalStepTest, MovesTheCopyBetweenTurns) {
  const std::vector<Turn> turns{{.worker = 0, .minibatches = 2}};
  World{2}.run([&](transport::World& world) {
    CyclicWorker worker(world, {.local_step = true, .script = turns});
    if (world.rank() == 0) {
      worker.compute_minibatch();
      EXPECT_EQ(worker.arrays.parameters[0], -0.125F);  // rate * (w/4 + 1)
      worker.compute_minibatch();
    }
    worker.scheme->flush();

    // The second gradient is -0.125/4 + 2; of two workers, half of both is pushed.
    const float half = (1.0F + 2.0F - 0.03125F) / 2.0F;
    EXPECT_EQ(worker.arrays.parameters[0], -0.125F * half);
  });
}

/// The turns of worker 1, who begins its second mini-batch when worker 0 has computed `minibatches`
/// since the end of worker 1's first one. Worker 0 then waits until the end of worker 1's second,
/// and does the same once more. No worker waits for the token, so that worker 0 has let it pass.
std::vector<Turn> turns_of_the_slower_worker(WhenEmpty when_empty) {
  std::vector<Turn> turns;
  std::barrier both(2);
  World{2}.run([&](transport::World& world) {
    CyclicWorker worker(world, {.when_empty = when_empty});
    worker.compute_minibatch();
    for (int i = 0; i < 2; ++i) {
      both.arrive_and_wait();
      if (world.rank() == 0) worker.compute_minibatches(2);
      both.arrive_and_wait();
      if (world.rank() == 1) worker.compute_minibatch();
    }
    both.arrive_and_wait();
    worker.scheme->flush();
    if (world.rank() == 1) turns = worker.turns();
  });
  return turns;
}

bool has_skip(const std::vector<Turn>& turns) {
  return std::ranges::any_of(turns, [](const Turn& turn) { return turn.kind == Turn::Kind::skip; });
}

// Worker 1 finds the token before its second mini-batch, or pushes two at its end, and finds it
// before its third.
TEST(CyclicSkipTest, AWorkerThatHasNothingLetsTheTokenPassIfItMay) {
  EXPECT_TRUE(has_skip(turns_of_the_slower_worker(WhenEmpty::skip)));
  EXPECT_FALSE(has_skip(turns_of_the_slower_worker(WhenEmpty::wait)));
}

// Momentum and parameters go on where the warm-up ended: alone, nothing shows that it did.
TEST(CyclicWarmUpTest, TakesOverWhatASynchronousStartLeft) {
  World{1}.run([](transport::World& world) {
    test::Arrays arrays(world, {5, 3});
    const std::shared_ptr<Optimizer> sgd = make_sgd(8, {});
    const auto warmed = make_warm_up(make_synchronous(arrays.replica(), sgd),
                                     make_cyclic(arrays.replica(), sgd), 3);
    test::Arrays others(world, {5, 3});
    const auto plain = make_synchronous(others.replica(), make_sgd(8, {}));

    for (int k = 0; k < 7; ++k) {
      step(*warmed, arrays, k);
      step(*plain, others, k);
    }

    EXPECT_EQ(arrays.parameters, others.parameters);
  });
}

TEST(CyclicWarmUpTest, EndsInTheSameModelOnAllRanks) {
  World{3}.run([](transport::World& world) {
    test::Arrays arrays(world, {5, 3});
    const std::shared_ptr<Optimizer> sgd = make_sgd(8, {});
    const auto scheme =
        make_warm_up(make_synchronous(arrays.replica(), sgd),
                     make_cyclic(arrays.replica(), sgd, {.delay = Delay::fixed}), 2);

    for (int k = 0; k < 5; ++k) step(*scheme, arrays, k);
    scheme->flush();

    std::vector<float> all(24);
    world.communicator().allgather(arrays.parameters, std::span(all)).wait();
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], arrays.parameters[i % 8]);
    EXPECT_EQ(scheme->counters().global_reductions, 2U + 3U);
  });
}

}  // namespace
}  // namespace rondo::sync::cyclic_test
