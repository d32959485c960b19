// Data and model of an experiment, and that they fit each other.

#include "trainer/prepare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::train::load_run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Experiment synthetic(const std::string& model) {
  Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.data.training = 20;
  experiment.data.test = 10;
  experiment.model.name = model;
  return experiment;
}

TEST(LoadRunTest, SyntheticImagesTakeTheModelsShape) {
  const PreparedRun run = load_run(synthetic("resnet20"));

  EXPECT_EQ(run.dataset->training.shape, (tensor::Shape{20, 32, 32, 3}));
  EXPECT_EQ(run.dataset->test.shape, (tensor::Shape{10, 32, 32, 3}));
  EXPECT_EQ(run.dataset->classes, run.model.classes);
}

TEST(LoadRunTest, TheModelTakesTheShapeOfSyntheticImages) {
  Experiment experiment = synthetic("lenet5");
  experiment.data.shape = {32, 40, 3};
  experiment.data.classes = 7;

  const PreparedRun run = load_run(experiment);

  EXPECT_EQ(run.model.input, (tensor::Shape{1, 32, 40, 3}));
  EXPECT_EQ(run.model.classes, 7);
  EXPECT_EQ(run.dataset->classes, 7);
  EXPECT_EQ(run.dataset->training.shape, (tensor::Shape{20, 32, 40, 3}));
}

TEST(LoadRunTest, RefusesImagesThatAreTooSmallForTheModel) {
  Experiment experiment = synthetic("lenet5");
  experiment.data.shape = {2, 2, 1};

  EXPECT_THAT([&] { static_cast<void>(load_run(experiment)); },
              ThrowsMessage<ConfigError>(HasSubstr("lenet5 does not fit the images of synthetic")));
}

TEST(LoadRunTest, RefusesAModelThatItDoesNotKnow) {
  EXPECT_THAT([&] { static_cast<void>(load_run(synthetic("lenet6"))); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("model.name: "), HasSubstr("lenet6"), HasSubstr("resnet20"))));
}

}  // namespace
}  // namespace rondo::train::load_run_test
