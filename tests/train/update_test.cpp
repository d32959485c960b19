// From [optimizer] and [update] to a learning rate and a scheme.

#include "schemes/make_scheme.hpp"

#include <memory_resource>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::train::update_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(UpdateTest, WarmUpIsInEpochsAndTheDecayEndsWithTheRun) {
  Experiment experiment;
  experiment.optimizer.learning_rate = 0.5;
  experiment.optimizer.warmup_epochs = 1.5;
  experiment.optimizer.final_learning_rate = 0.25;

  const sync::LearningRate rate = learning_rate_of(experiment, 10, 100);

  EXPECT_EQ(rate.warmup_steps, 15);
  EXPECT_EQ(rate.at(14), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.25);
}

TEST(UpdateTest, TheScheduleCanBeConstant) {
  Experiment experiment;
  experiment.optimizer.schedule = "constant";

  EXPECT_EQ(learning_rate_of(experiment, 10, 100).at(99), experiment.optimizer.learning_rate);
}

TEST(UpdateTest, RefusesAnUnknownSchedule) {
  Experiment experiment;
  experiment.optimizer.schedule = "zigzag";

  EXPECT_THAT([&] { static_cast<void>(learning_rate_of(experiment, 1, 1)); },
              ThrowsMessage<ConfigError>(HasSubstr("optimizer.schedule: \"zigzag\"")));
}

// Two dimensions are those of weights, also where a rank holds but a part of them.
TEST(UpdateTest, NormsAndBiasesAreTheVectorsOfAModel) {
  const ParameterLayout layout{.parameters = {{.name = "conv.weight", .shape = {4, 1, 1, 1}},
                                              {.name = "conv.bias", .shape = {4}, .offset = 4},
                                              {.name = "bn.weight", .shape = {4}, .offset = 8},
                                              {.name = "bn.bias", .shape = {4}, .offset = 12},
                                              {.name = "fc.weight", .shape = {1, 4}, .offset = 16},
                                              {.name = "fc.bias", .shape = {1}, .offset = 20}}};

  const std::vector<sync::ElementRange> ranges = norms_and_biases(layout);

  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].offset, 4U);
  EXPECT_EQ(ranges[0].size, 12U);
  EXPECT_EQ(ranges[1].offset, 20U);
  EXPECT_EQ(ranges[1].size, 1U);
}

TEST(UpdateTest, MakesTheSchemeThatTheExperimentNames) {
  rondo::test::World{1}.run([](transport::World& world) {
    std::vector<float> parameters(3);
    std::vector<float> gradients(3);
    transport::Communicator& all = world.communicator();
    const sync::Replica replica{
        &world, parameters, gradients, {}, {{"layer", 0, 3, {nullptr, &all, &all}}}};
    Experiment experiment;

    EXPECT_EQ(make_scheme(experiment, {.replica = replica})->replicated().at(0).data(),
              parameters.data());
    experiment.optimizer.name = "lbfgs";
    EXPECT_THAT([&] { static_cast<void>(make_scheme(experiment, {.replica = replica})); },
                ThrowsMessage<ConfigError>(HasSubstr("optimizer.name: \"lbfgs\"")));
    experiment.optimizer.name = "sgd";
    experiment.update.scheme = "gossip";
    EXPECT_THAT([&] { static_cast<void>(make_scheme(experiment, {.replica = replica})); },
                ThrowsMessage<ConfigError>(HasSubstr("update.scheme: \"gossip\"")));
  });
}

}  // namespace
}  // namespace rondo::train::update_test
