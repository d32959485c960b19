// Whole runs of ranks that do not step together: epochs, traces, replay.

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/resumed_runs.hpp"
#include "train/tiny_network.hpp"

namespace rondo::train::trainer_cyclic_test {
namespace {

using nlohmann::json;
using rondo::test::Backend;
using rondo::test::ScratchFolder;
using test::events;
using test::Outcome;
using test::train_on;
using test::train_once;
using testing::Each;

// 192 samples an epoch, in batches of 24. However late a rank gets its turn, no push is as long as
// an epoch.
Experiment cyclic(std::int64_t epochs = 2) {
  Experiment experiment = test::small_experiment();
  experiment.update.scheme = "cyclic";
  experiment.train.max_steps = 0;
  experiment.train.epochs = epochs;
  experiment.update.minibatch_cap = 3;
  return experiment;
}

TEST(TrainerCyclicTest, AnEpochIsOverWhenItsSamplesAreTrained) {
  for (const int ranks : {1, 2, 3}) {
    const Outcome outcome = train_on(ranks, cyclic());
    EXPECT_EQ(outcome.summaries.at(0).steps, 16) << ranks;
    EXPECT_EQ(outcome.metrics.at(0).epoch, 2) << ranks;
    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0))) << ranks;
  }
}

TEST(TrainerCyclicTest, MaxStepsAreBatchesOfSamples) {
  Experiment experiment = cyclic();
  experiment.train.max_steps = 11;
  const RunSummary summary = train_on(2, experiment).summaries.at(0);
  EXPECT_EQ(summary.steps, 11);
  EXPECT_GE(summary.samples, 11 * 24);
}

TEST(TrainerCyclicTest, ASynchronousWarmUpComesFirst) {
  Experiment experiment = cyclic(2);
  experiment.update.warmup_epochs = 1.0;
  EXPECT_EQ(train_on(2, experiment).summaries.at(0).steps, 16);
}

TEST(TrainerCyclicTest, NodesPassTheTokenOn) {
  const Outcome outcome = train_on(rondo::test::World(Backend::hierarchy, 3), 3, cyclic(1));
  EXPECT_EQ(outcome.summaries.at(0).steps, 8);
  EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0)));
}

TEST(TrainerCyclicTest, ReachesNinetyPercentWithFixedAndDynamicDelays) {
  for (const sync::Delay delay : {sync::Delay::fixed, sync::Delay::dynamic}) {
    Experiment experiment = cyclic(8);
    experiment.data.training = 1000;
    experiment.update.delay = delay;
    // How old gradients are depends on when the workers get a processor. Two workers bring half of
    // a momentum by themselves.
    experiment.optimizer.momentum = 0.0;

    EXPECT_GE(train_on(2, experiment).metrics.at(0).accuracy, 90.0) << static_cast<int>(delay);
  }
}

TEST(TrainerCyclicTest, EveryTurnIsInTheMetrics) {
  const ScratchFolder folder;
  train_once(2, cyclic(), {.run_folder = folder.path()});
  const std::vector<json> pushes = events(folder.path(), "push");

  ASSERT_FALSE(pushes.empty());
  EXPECT_TRUE(std::ranges::is_sorted(
      pushes, {}, [](const json& push) { return push.at("version").get<std::int64_t>(); }));
  std::vector<int> workers;
  for (const json& push : pushes) workers.push_back(push.at("worker"));
  EXPECT_THAT(workers, testing::Contains(0));
  EXPECT_THAT(workers, testing::Contains(1));
  for (const char* name : {"kind", "minibatches", "samples", "staleness", "seconds"}) {
    EXPECT_TRUE(pushes.front().contains(name)) << name;
  }
}

TEST(TrainerCyclicTest, AReplayGivesTheSameBits) {
  const ScratchFolder first;
  const ScratchFolder second;
  Experiment experiment = cyclic();
  const EpochMetrics recorded = train_once(3, experiment, {.run_folder = first.path()});
  experiment.update.replay = first.path() / "token_trace.jsonl";
  const EpochMetrics replayed = train_once(3, experiment, {.run_folder = second.path()});
  EXPECT_EQ(replayed.parameter_hash, recorded.parameter_hash);
  EXPECT_EQ(replayed.test_loss, recorded.test_loss);
}

/// The digests of the parameters at the end of each epoch of the run in `folder`.
std::vector<std::string> digests_of(const std::filesystem::path& folder) {
  std::vector<std::string> digests;
  for (const json& epoch : events(folder, "epoch")) digests.push_back(epoch.at("parameter_hash"));
  return digests;
}

TEST(TrainerCyclicTest, AReplayMayHaveFewerOrMoreEpochs) {
  for (const sync::Delay delay : {sync::Delay::fixed, sync::Delay::dynamic}) {
    const ScratchFolder recorded;
    Experiment experiment = cyclic(2);
    experiment.optimizer.schedule = sync::Decay::constant;
    experiment.update.delay = delay;
    train_once(3, experiment, {.run_folder = recorded.path()});
    const std::vector<std::string> expected = digests_of(recorded.path());
    ASSERT_EQ(expected.size(), 2U);
    experiment.update.replay = recorded.path() / "token_trace.jsonl";
    for (const std::int64_t epochs : {1, 3}) {
      const ScratchFolder replayed;
      experiment.train.epochs = epochs;

      EXPECT_EQ(train_once(3, experiment, {.run_folder = replayed.path()}).epoch, epochs)
          << static_cast<int>(delay);

      std::vector<std::string> digests = digests_of(replayed.path());
      digests.resize(2, expected[1]);  // what is more goes by the clock
      EXPECT_EQ(digests, expected) << static_cast<int>(delay) << ", " << epochs << " epochs";
    }
  }
}

// The pushes at the end of a run are in its metrics alone.
TEST(TrainerCyclicTest, ATraceEndsWithParks) {
  const ScratchFolder folder;
  train_once(2, cyclic(1), {.run_folder = folder.path()});
  std::ifstream stream(folder.path() / "token_trace.jsonl");
  std::size_t turns = 0;
  std::string last;
  for (std::string line; std::getline(stream, line); ++turns) last = line;

  ASSERT_GT(turns, 0U);
  EXPECT_EQ(json::parse(last).at("kind"), "park");
  EXPECT_GT(events(folder.path(), "push").size(), turns);
}

TEST(TrainerCyclicTest, GroupsThatSplitLayersTakeTurnsAsSingleRanksDo) {
  const ScratchFolder folder;
  Experiment alone = cyclic();
  Experiment groups = alone;
  groups.grid.channel = 2;
  const EpochMetrics recorded = train_once(4, groups, {.run_folder = folder.path()});
  alone.update.replay = folder.path() / "token_trace.jsonl";

  const EpochMetrics replayed = train_on(2, alone).metrics.at(0);

  EXPECT_NEAR(recorded.loss, replayed.loss, 1e-4 * replayed.loss);
  EXPECT_NEAR(recorded.test_loss, replayed.test_loss, 1e-4 * replayed.test_loss);
}

// No sample of a batch is cut off where ranks do not divide it: each worker's are its share.
TEST(TrainerCyclicTest, UnequalSharesMakeTheWholeBatch) {
  const ScratchFolder folder;
  Experiment experiment = cyclic(1);
  experiment.train.global_batch = 7;
  experiment.update.delay = sync::Delay::fixed;
  train_once(3, experiment, {.run_folder = folder.path()});
  std::vector<json> pushes = events(folder.path(), "push");
  std::erase_if(pushes, [](const json& push) { return push.at("kind") != "push"; });

  ASSERT_GE(pushes.size(), 6U);
  for (std::size_t i = 2; i < 6; ++i) {  // 2, 2 and 3 samples
    const std::int64_t before = i < 3 ? 0 : pushes[i - 3].at("samples").get<std::int64_t>();
    EXPECT_EQ(pushes[i].at("samples").get<std::int64_t>() - before, 7) << i;
  }
}

// The smaller share of 9 samples of two replicas is less than its micro-batches, the larger as
// many.
TEST(TrainerCyclicTest, AGroupMayHaveFewerSamplesThanPieces) {
  Experiment experiment = cyclic(1);
  experiment.grid.channel = 2;
  experiment.train.global_batch = 9;
  experiment.train.accumulate = 5;
  EXPECT_GE(train_on(4, experiment).summaries.at(0).samples, 9 * 21);
}

/// Two ranks, of which rank 0 computes two mini-batches between the first and the second one of
/// rank 1, and two between that and the third; before and after, both go on as they like. Where no
/// rank waits for the token, it lies with rank 1 whenever rank 1 goes on: rank 0 has let it pass,
/// and cannot get it back.
class Alternation {
 public:
  /// After every mini-batch of a rank, which may end it.
  void on_step(int rank) {
    int& done = rank == 0 ? done_by_0_ : done_by_1_;
    ++done;
    if (rank == 1 && done <= 2) {
      both_.arrive_and_wait();  // rank 0 begins its two
      both_.arrive_and_wait();  // and has ended them
    } else if (rank == 0 && (done == 1 || done == 5)) {
      both_.arrive_and_wait();
    } else if (rank == 0 && done == 3) {
      both_.arrive_and_wait();
      both_.arrive_and_wait();  // rank 1 has computed its second one
    }
  }

 private:
  int done_by_0_ = 0;
  int done_by_1_ = 0;
  std::barrier<> both_{2};
};

/// One epoch of two ranks: its turns, and the model at its end.
struct CyclicEpoch {
  std::vector<json> turns = {};
  std::string parameter_hash = {};
};

CyclicEpoch epoch_of(const std::string& settings, Alternation* alternation = nullptr) {
  const ScratchFolder folder;
  const Experiment experiment =
      test::tiny_experiment("update.scheme=cyclic data.training=48 train.epochs=1 " + settings);
  CyclicEpoch epoch;
  rondo::test::World{2}.run([&](transport::World& world) {
    TrainerOptions options;
    options.run_folder = world.rank() == 0 ? folder.path() : std::filesystem::path();
    if (alternation != nullptr) options.on_step = [&] { alternation->on_step(world.rank()); };
    const EpochMetrics last = train(world, experiment, options);
    if (world.rank() == 0) epoch.parameter_hash = last.parameter_hash;
  });
  epoch.turns = events(folder.path(), "push");
  return epoch;
}

CyclicEpoch alternating_epoch_of(const std::string& settings) {
  Alternation alternation;
  return epoch_of(settings, &alternation);
}

bool has_turn_of_several(const CyclicEpoch& epoch) {
  return std::ranges::any_of(
      epoch.turns, [](const json& turn) { return turn.at("minibatches").get<int>() > 1; });
}

bool has_skip(const CyclicEpoch& epoch) {
  return std::ranges::any_of(epoch.turns,
                             [](const json& turn) { return turn.at("kind") == "skip"; });
}

// If the token comes at most once in two mini-batches, one of them is left for the next turn.
TEST(TrainerCyclicTest, OnlyWithADynamicDelayAWorkerComputesOnUntilItsTurn) {
  EXPECT_TRUE(has_turn_of_several(alternating_epoch_of("update.delay=dynamic")));
  EXPECT_FALSE(has_turn_of_several(epoch_of("update.delay=fixed")));
}

TEST(TrainerCyclicTest, WithACapOfOneADynamicDelayIsAFixedOne) {
  const CyclicEpoch capped = epoch_of("update.minibatch_cap=1");
  EXPECT_FALSE(has_turn_of_several(capped));
  EXPECT_EQ(capped.parameter_hash, epoch_of("update.delay=fixed").parameter_hash);
}

// Rank 1 finds the token before its second mini-batch, or pushes both at its end, and finds it
// before the third.
TEST(TrainerCyclicTest, ATurnWithoutAGradientIsPassedOnIfTheKeySaysSo) {
  EXPECT_TRUE(has_skip(alternating_epoch_of("update.when_empty=skip")));
  EXPECT_FALSE(has_skip(alternating_epoch_of("update.when_empty=wait")));
}

TEST(TrainerCyclicTest, ProgressIsInSamples) {
  const ScratchFolder folder;
  std::vector<Progress> progress;
  train_once(2, cyclic(1),
             {.run_folder = folder.path(),
              .observer = {.on_progress = [&](const Progress& now) { progress.push_back(now); }}});
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().epoch_samples, 192);
  EXPECT_GT(progress.back().samples, 0);
}

TEST(TrainerCyclicTest, RefusesATraceThatIsNone) {
  Experiment experiment = cyclic();
  experiment.update.replay = "/nonexistent";
  rondo::test::World{2}.run([&](transport::World& world) {
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { train(world, experiment, {}); }),
                testing::HasSubstr("update.replay: /nonexistent"));
  });
}

}  // namespace
}  // namespace rondo::train::trainer_cyclic_test
