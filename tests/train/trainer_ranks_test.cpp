// Ranks that train together: what they average, what they hold, and how that is checked.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "schemes/lazy.hpp"
#include "schemes/make_scheme.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/support/network.hpp"
#include "trainer/agreement.hpp"

namespace rondo::train::trainer_ranks_test {
namespace {

using Kind = LazyLayers::Kind;
using rondo::test::World;
using test::Outcome;
using test::relative_distance;
using test::train_on;
using testing::ElementsAre;
using testing::HasSubstr;

// The same run on different numbers of ranks, and twice: what must be equal is.

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
      EXPECT_LE(relative_distance(part(many), part(one)), tolerance)
          << parameter.name << " on " << ranks << " ranks";
    }
  }
}

// Partners come from the global batch, wherever they are trained.
TEST_P(TrainerRanksTest, MixesTheSameImagesOnAnyNumberOfRanks) {
  Experiment experiment = test::small_experiment("lenet5", GetParam());
  experiment.data.augment = {"mixup:0.8"};
  const Outcome one = train_on(1, experiment);
  for (const int ranks : {2, 4}) {
    const Outcome many = train_on(ranks, experiment);
    EXPECT_LE(relative_distance(many.parameters.at(0), one.parameters.at(0)), 1e-5) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(GlobalBatch, TrainerRanksTest, testing::Values(24, 25, 999));

TEST(TrainerTest, AllRanksHoldTheSameBits) {
  for (const char* model : {"lenet5", "resnet20"}) {
    const Outcome outcome = train_on(3, test::small_experiment(model, 7));
    EXPECT_THAT(outcome.parameters, testing::Each(outcome.parameters.at(0))) << model;
  }
}

TEST(TrainerTest, MixupOfNothingGivesTheBitsOfNoMixup) {
  Experiment experiment = test::small_experiment();
  const Outcome usual = train_on(2, experiment);
  experiment.data.augment = {"mixup:0"};
  EXPECT_EQ(train_on(2, experiment).parameters, usual.parameters);
  experiment.data.augment = {"mixup:1"};
  EXPECT_NE(train_on(2, experiment).parameters, usual.parameters);
}

TEST(TrainerTest, ALastBatchWithFewerSamplesThanRanksIsExact) {
  Experiment experiment = test::small_experiment("lenet5", 199);  // then one sample is left
  experiment.train.max_steps = 4;
  const Outcome one = train_on(1, experiment);
  const Outcome three = train_on(3, experiment);
  EXPECT_LE(relative_distance(three.parameters.at(0), one.parameters.at(0)), 1e-5);
}

// 200 images are 8 batches of 24, and 8 images.
TEST(TrainerTest, TheShortLastBatchOfAnEpochCanBeLeftOut) {
  for (const char* scheme : {"synchronous", "lazy"}) {
    Experiment experiment = test::small_experiment();
    experiment.update.scheme = scheme;
    experiment.optimizer.schedule = sync::Decay::constant;
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

  ASSERT_THAT(outcome.metrics, testing::SizeIs(3));
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

// Ranks that should hold the same parameters are compared by hash.

TEST(ReplicaCheckTest, EqualRanksPass) {
  for (const int ranks : {1, 2, 3}) {
    World{ranks}.run([=](transport::World& world) {
      EXPECT_NO_THROW(check_replicas(world.communicator(), {.pc = ranks}, std::string(32, 'a'), 1));
    });
  }
}

TEST(ReplicaCheckTest, NamesTheRanksThatDiffer) {
  World{4}.run([](transport::World& world) {
    std::string mine(32, 'a');
    if (world.rank() == 1 || world.rank() == 3) mine.back() = '9';
    EXPECT_THAT(rondo::test::error_text<NumericError>(
                    [&] { check_replicas(world.communicator(), {.pc = 4}, mine, 7); }),
                testing::AllOf(HasSubstr("epoch 7"), HasSubstr("rank(s) 1, 3 differ from rank 0")));
  });
}

TEST(ReplicaCheckTest, RanksOfOtherPositionsHoldOtherParameters) {
  World{4}.run([](transport::World& world) {
    const std::string mine(32, world.rank() % 2 == 0 ? 'a' : 'b');
    EXPECT_NO_THROW(check_replicas(world.communicator(), {.pr = 2, .pc = 2}, mine, 1));
  });
}

TEST(ReplicaCheckTest, ADifferenceInOnePositionIsThrownInAll) {
  World{6}.run([](transport::World& world) {
    std::string mine(32, world.rank() % 2 == 0 ? 'a' : 'b');
    if (world.rank() == 5) mine.back() = '9';
    EXPECT_THAT(rondo::test::error_text<NumericError>(
                    [&] { check_replicas(world.communicator(), {.pr = 2, .pc = 3}, mine, 1); }),
                HasSubstr(": rank(s) 5 differ from rank 1;"));
  });
}

// Which ranks average among themselves.

std::vector<transport::RankInfo> ranks_on(const std::vector<int>& nodes) {
  std::vector<transport::RankInfo> ranks;
  for (const int node : nodes) ranks.push_back({.node = node});
  return ranks;
}

TEST(AveragingGroupsTest, AreTheNodesByDefault) {
  const std::vector<AveragingGroups> levels = averaging_groups({}, ranks_on({0, 0, 1, 0, 1}));
  ASSERT_EQ(levels.size(), 1U);
  EXPECT_EQ(levels[0].period, 4);
  EXPECT_THAT(levels[0].group_of, ElementsAre(0, 0, 1, 0, 1));
}

TEST(AveragingGroupsTest, AreConsecutiveRanksOfAGivenSize) {
  Experiment experiment;
  experiment.update.group = 2;
  experiment.update.levels = {{8, 4.0}};
  const std::vector<AveragingGroups> levels =
      averaging_groups(experiment, ranks_on({0, 0, 0, 0, 0}));
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_THAT(levels[0].group_of, ElementsAre(0, 0, 1, 1, 2));
  EXPECT_EQ(levels[1].period, 8);
  EXPECT_THAT(levels[1].group_of, ElementsAre(0, 0, 0, 0, 1));
}

TEST(AveragingGroupsTest, RefusesGroupsThatCutThroughNodes) {
  Experiment experiment;
  experiment.update.levels = {{8, 2.0}};
  EXPECT_THAT(
      rondo::test::error_text<ConfigError>(
          [&] { static_cast<void>(averaging_groups(experiment, ranks_on({0, 0, 0, 1}))); }),
      HasSubstr("update.levels: the averaging groups of period 8 cut through one of period 4, at "
                "rank 2"));
}

// Which layers of a model are lazy.

TEST(LazyPlanTest, AConvolutionTakesItsBatchNormAlong) {
  const Model model = make_model("resnet8");
  const ParameterLayout layout = layout_of(model);
  const LazyPlan plan = plan_lazy_layers(model, {Kind::count, 2});

  EXPECT_THAT(plan.names, ElementsAre("conv1", "layer1.0.conv1"));
  EXPECT_EQ(plan.layers, 4U);
  EXPECT_EQ(layout.blocks[3].name, "layer1.0.bn1");
  EXPECT_EQ(plan.probes.at(0).size, 16U * 3 * 9);
  EXPECT_EQ(plan.probes.at(1).offset, layout.blocks[2].offset);
  EXPECT_EQ(plan.probes.at(1).size, 16U * 16 * 9);
}

TEST(LazyPlanTest, ABiasIsNoPartOfTheProbe) {
  const LazyPlan plan = plan_lazy_layers(make_model("lenet5"), {Kind::count, 2});
  EXPECT_EQ(plan.layers, 2U);
  EXPECT_EQ(plan.probes.at(1).offset, 6U * 25 + 6);
  EXPECT_EQ(plan.probes.at(1).size, 16U * 6 * 25);
}

TEST(LazyPlanTest, AFractionIsRoundedButNotToNone) {
  const Model model = make_model("resnet8");  // 9 convolutions
  EXPECT_EQ(plan_lazy_layers(model, {Kind::fraction, 0.5}).names.size(), 5U);
  EXPECT_EQ(plan_lazy_layers(model, {Kind::fraction, 0.01}).names.size(), 1U);
  EXPECT_EQ(plan_lazy_layers(model, {Kind::fraction, 1.0}).names.size(), 9U);
  EXPECT_THAT(plan_lazy_layers(model, {Kind::fraction, 0.0}).names, testing::IsEmpty());
}

TEST(LazyPlanTest, AutoTakesTheUnhiddenConvolutionsAndOneAtLeast) {
  const Model model = make_model("resnet8");
  EXPECT_THAT(plan_lazy_layers(model, {}, 0).names, ElementsAre("conv1"));
  EXPECT_THAT(plan_lazy_layers(model, {}, 2).names, ElementsAre("conv1"));
  EXPECT_THAT(plan_lazy_layers(model, {}, 3).names, ElementsAre("conv1", "layer1.0.conv1"));
  EXPECT_EQ(plan_lazy_layers(model, {}, 1000).names.size(), 9U);
}

TEST(LazyPlanTest, RefusesMoreConvolutionsThanThereAre) {
  EXPECT_THAT(
      rondo::test::error_text<ConfigError>(
          [] { static_cast<void>(plan_lazy_layers(make_model("lenet5"), {Kind::count, 3})); }),
      HasSubstr("update.lazy_layers: lenet5 has 2 convolutions that can be lazy, and not 3"));
}

}  // namespace
}  // namespace rondo::train::trainer_ranks_test
