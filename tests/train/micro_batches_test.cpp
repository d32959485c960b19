// Batches in micro-batches, and ranks that are slowed down on purpose.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "trainer/step_link.hpp"

namespace rondo::train::micro_batches_test {
namespace {

using test::relative_difference;
using test::small_experiment;
using test::train_on;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

// Without batch norm a batch is the sum of its micro-batches. 24 samples in micro-batches of 5 and
// 4 on one rank, of 2, 1 and (fewer samples than micro-batches in the last, short batch) none on
// three.
TEST(TrainerMicroBatchesTest, ABatchInMicroBatchesIsTheWholeOneToRounding) {
  Experiment whole = small_experiment();
  whole.train.max_steps = 9;
  Experiment micro_batches = whole;
  micro_batches.train.accumulate = 5;
  for (const int ranks : {1, 3}) {
    const auto expected = train_on(ranks, whole);
    const auto outcome = train_on(ranks, micro_batches);

    EXPECT_LE(relative_difference(outcome.parameters.at(0), expected.parameters.at(0)), 1e-5);
    EXPECT_EQ(outcome.summaries.at(0).samples, 200);
    EXPECT_EQ(outcome.summaries.at(0).global_bytes, expected.summaries.at(0).global_bytes);
  }
}

TEST(TrainerMicroBatchesTest, EverySchemeTakesPieces) {
  for (const char* scheme : {"lazy", "k_step", "cyclic"}) {
    Experiment experiment = small_experiment("resnet8");
    experiment.update.scheme = scheme;
    experiment.update.warmup_epochs = 0.0;
    experiment.train.accumulate = 2;

    EXPECT_EQ(train_on(2, experiment).summaries.at(0).steps, 5) << scheme;
  }
}

TEST(InjectionsTest, SayWhatIsSlowedDown) {
  Experiment experiment;
  EXPECT_THAT(injections_of(experiment, 2), IsEmpty());
  experiment.inject.slow_ranks = {{1, 1.0}, {3, 2.5}};
  experiment.transport.latency_us = 50.0;
  experiment.transport.bandwidth_gbs = 0.5;

  EXPECT_THAT(injections_of(experiment, 1), ElementsAre("rank 3 computes 2.5 times as slowly"));
  EXPECT_THAT(injections_of(experiment, 2),
              ElementsAre("rank 3 computes 2.5 times as slowly", "50 us of latency between nodes",
                          "0.5 GB/s between nodes"));
}

TEST(InjectionsTest, EveryOutputIsLabelled) {
  Experiment experiment = small_experiment();
  experiment.inject.slow_ranks = {{1, 1.5}};
  std::vector<std::string> notes;
  std::vector<Progress> progress;
  std::vector<RunSummary> ends;
  TrainerOptions options;
  options.observer = {
      .on_note = [&](const std::string& note) { notes.push_back(note); },
      .on_progress = [&](const Progress& now) { progress.push_back(now); },
      .on_end = [&](const RunSummary& summary) { ends.push_back(summary); },
  };
  rondo::test::World{2}.run(
      [&](transport::World& world) { EXPECT_TRUE(train(world, experiment, options).injected); });

  EXPECT_THAT(notes, Contains("injected: rank 1 computes 1.5 times as slowly"));
  EXPECT_TRUE(progress.at(0).injected);
  EXPECT_THAT(ends.at(0).injected, ElementsAre("rank 1 computes 1.5 times as slowly"));
}

TEST(InjectionsTest, ASlowRankTrainsTheSameModel) {
  Experiment experiment = small_experiment();
  const auto expected = train_on(2, experiment);
  experiment.inject.slow_ranks = {{1, 2.0}};

  EXPECT_EQ(train_on(2, experiment).parameters, expected.parameters);
}

TEST(InjectionsTest, RefuseRanksThatAreNotThere) {
  Experiment experiment = small_experiment();
  experiment.inject.slow_ranks = {{2, 2.0}};
  rondo::test::World{2}.run([&](transport::World& world) {
    EXPECT_THAT(
        [&] { train(world, experiment, {}); },
        ThrowsMessage<ConfigError>(HasSubstr("inject.slow_ranks: there is no rank 2 among 2")));
  });
}

}  // namespace
}  // namespace rondo::train::micro_batches_test
