// Data and model of an experiment, and that they fit each other.

#include "trainer/material.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::train::material_test {
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

TEST(MaterialTest, SyntheticPicturesTakeTheModelsShape) {
  const Material material = make_material(synthetic("resnet20"));

  EXPECT_EQ(material.dataset.training.shape, (tensor::Shape{20, 32, 32, 3}));
  EXPECT_EQ(material.dataset.test.shape, (tensor::Shape{10, 32, 32, 3}));
  EXPECT_EQ(material.dataset.classes, material.model.classes);
}

TEST(MaterialTest, TheModelTakesTheShapeOfSyntheticPictures) {
  Experiment experiment = synthetic("lenet5");
  experiment.data.shape = {32, 40, 3};
  experiment.data.classes = 7;

  const Material material = make_material(experiment);

  EXPECT_EQ(material.model.input, (tensor::Shape{1, 32, 40, 3}));
  EXPECT_EQ(material.model.classes, 7);
  EXPECT_EQ(material.dataset.classes, 7);
  EXPECT_EQ(material.dataset.training.shape, (tensor::Shape{20, 32, 40, 3}));
}

TEST(MaterialTest, RefusesPicturesThatAreTooSmallForTheModel) {
  Experiment experiment = synthetic("lenet5");
  experiment.data.shape = {2, 2, 1};

  EXPECT_THAT(
      [&] { static_cast<void>(make_material(experiment)); },
      ThrowsMessage<ConfigError>(HasSubstr("lenet5 does not fit the pictures of synthetic")));
}

TEST(MaterialTest, RefusesAModelThatItDoesNotKnow) {
  EXPECT_THAT([&] { static_cast<void>(make_material(synthetic("lenet6"))); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("model.name: "), HasSubstr("lenet6"), HasSubstr("resnet20"))));
}

}  // namespace
}  // namespace rondo::train::material_test
