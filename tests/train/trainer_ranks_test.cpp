// The same run on different numbers of ranks, and twice: what must be equal is.

#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/experiments.hpp"
#include "train/outcome.hpp"

namespace rondo::train::trainer_ranks_test {
namespace {

using test::Outcome;
using test::relative_difference;
using test::train_on;
using testing::Each;
using testing::SizeIs;

// The global batch is divisible by 2, 3 and 4; by none of them; and larger than the data set, so
// that the last, short batch is the only one. 200 = 8 * 24 + 8, = 8 * 25.
class TrainerRanksTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(TrainerRanksTest, AnyNumberOfRanksTrainsTheSameModel) {
  constexpr double tolerance = 1e-5;
  const Experiment experiment = test::small_experiment("lenet5", GetParam());
  const Outcome one = train_on(1, experiment);
  for (const int ranks : {2, 3, 4}) {
    const Outcome many = train_on(ranks, experiment);
    for (const Parameter& parameter : one.layout.parameters) {
      const auto part = [&](const Outcome& outcome) {
        return std::span(outcome.parameters.at(0)).subspan(parameter.offset, parameter.size());
      };
      EXPECT_LE(relative_difference(part(many), part(one)), tolerance)
          << parameter.name << " on " << ranks << " ranks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(GlobalBatch, TrainerRanksTest, testing::Values(24, 25, 999));

TEST(TrainerTest, FiveStepsChangeTheModel) {
  Experiment still = test::small_experiment();
  still.optimizer.learning_rate = 0.0;

  EXPECT_NE(train_on(1, test::small_experiment()).parameters.at(0),
            train_on(1, still).parameters.at(0));
}

TEST(TrainerTest, AllRanksHoldTheSameBits) {
  for (const char* model : {"lenet5", "resnet20"}) {
    const Outcome outcome = train_on(3, test::small_experiment(model, 7));

    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0))) << model;
  }
}

TEST(TrainerTest, TwoRunsWithOneSeedGiveTheSameBits) {
  const Experiment experiment = test::small_experiment();
  const Outcome first = train_on(2, experiment);
  const Outcome second = train_on(2, experiment);

  EXPECT_EQ(first.parameters, second.parameters);
  EXPECT_EQ(first.metrics.at(0).parameter_hash, second.metrics.at(0).parameter_hash);
  EXPECT_EQ(first.metrics.at(0).loss, second.metrics.at(0).loss);
}

TEST(TrainerTest, AnotherSeedGivesAnotherModel) {
  Experiment experiment = test::small_experiment();
  const Outcome first = train_on(1, experiment);
  experiment.train.seed = 2;

  EXPECT_NE(first.parameters, train_on(1, experiment).parameters);
}

TEST(TrainerTest, ALastBatchWithFewerSamplesThanRanksIsExact) {
  Experiment experiment = test::small_experiment("lenet5", 199);  // then one sample is left
  experiment.train.max_steps = 4;

  const Outcome one = train_on(1, experiment);
  const Outcome three = train_on(3, experiment);

  EXPECT_LE(relative_difference(three.parameters.at(0), one.parameters.at(0)), 1e-5);
}

// 200 images are 8 batches of 24, and 8 images.
TEST(TrainerTest, TheShortLastBatchOfAnEpochCanBeLeftOut) {
  for (const char* scheme : {"synchronous", "lazy"}) {
    Experiment experiment = test::small_experiment();
    experiment.update.scheme = scheme;
    experiment.optimizer.schedule = "constant";
    experiment.train.max_steps = 8;
    const Outcome eight_steps = train_on(2, experiment);
    experiment.train.max_steps = 0;
    experiment.data.drop_last = true;
    const Outcome epoch = train_on(2, experiment);

    EXPECT_EQ(epoch.summaries.at(0).steps, 8) << scheme;
    EXPECT_EQ(epoch.summaries.at(0).samples, 192) << scheme;
    EXPECT_EQ(epoch.parameters, eight_steps.parameters) << scheme;
  }
}

TEST(TrainerTest, EveryRankReturnsTheSameMetrics) {
  const Outcome outcome = train_on(3, test::small_experiment());

  ASSERT_THAT(outcome.metrics, SizeIs(3));
  for (const EpochMetrics& metrics : outcome.metrics) {
    EXPECT_EQ(metrics.loss, outcome.metrics[0].loss);
    EXPECT_EQ(metrics.accuracy, outcome.metrics[0].accuracy);
    EXPECT_EQ(metrics.seconds, outcome.metrics[0].seconds);
    EXPECT_EQ(metrics.bytes_sent, outcome.metrics[0].bytes_sent);
    EXPECT_EQ(metrics.parameter_hash, outcome.metrics[0].parameter_hash);
  }
}

TEST(TrainerTest, LearnsSyntheticImages) {
  Experiment experiment = test::small_experiment();
  experiment.data.training = 1000;
  experiment.train.max_steps = 0;
  experiment.train.epochs = 4;

  EXPECT_GE(train_on(2, experiment).metrics.at(0).accuracy, 90.0);
}

}  // namespace
}  // namespace rondo::train::trainer_ranks_test
