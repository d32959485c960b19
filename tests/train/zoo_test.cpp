// The networks that make_model() knows: what they learn and how their shapes go.

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>

namespace rondo::train::zoo_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const Parameter& find(const std::vector<Parameter>& parameters, const std::string& name) {
  for (const Parameter& parameter : parameters) {
    if (parameter.name == name) return parameter;
  }
  throw std::out_of_range("no parameter " + name);
}

// Counted by hand for LeNet-5, by PyTorch for the same ResNet-20 with projection shortcuts.
TEST(ZooTest, CountsTheParametersOfLenet5) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));

  EXPECT_EQ(layout.parameter_count, 61'706U);
  EXPECT_EQ(layout.statistic_count, 0U);
  EXPECT_EQ(layout.blocks.size(), 5U);
}

TEST(ZooTest, CountsTheParametersOfResnet20) {
  const ParameterLayout layout = layout_of(make_model("resnet20"));

  EXPECT_EQ(layout.parameter_count, 272'474U);
  EXPECT_EQ(layout.statistic_count, 2U * (7 * 16 + 7 * 32 + 7 * 64));
  EXPECT_EQ(layout.blocks.size(), 21U + 21U + 1U);
}

// Per block more, and stages of 16, 32 and 64 filters: 4,672 + 18,560 + 73,984 parameters.
TEST(ZooTest, CountsTheParametersOfTheOtherResnets) {
  const auto parameters = [](const char* name) {
    return layout_of(make_model(name)).parameter_count;
  };

  EXPECT_EQ(parameters("resnet8"), 272'474U - 2U * 97'216U);
  EXPECT_EQ(parameters("resnet32"), 272'474U + 2U * 97'216U);
  EXPECT_EQ(parameters("resnet56"), 272'474U + 6U * 97'216U);
  EXPECT_EQ(parameters("resnet110"), 272'474U + 15U * 97'216U);
}

// Convolutions 432 + 4,608 + 18,432 of the first, 13,824 + 55,296 more in each block; two batch
// norms a block and one at the end; shortcuts 512 + 2,048; 650 in the classifier.
TEST(ZooTest, CountsTheParametersOfPreactivationResnets) {
  const auto parameters = [](const char* name) {
    return layout_of(make_model(name)).parameter_count;
  };
  constexpr std::size_t convolutions =
      432 + 6 * 2'304 + (4'608 + 5 * 9'216) + (18'432 + 5 * 36'864);
  constexpr std::size_t norms = 2 * (6 * 16 + (16 + 5 * 32) + (32 + 5 * 64) + 64);

  EXPECT_EQ(parameters("preact_resnet20"), convolutions + norms + 512 + 2'048 + 650);
  EXPECT_EQ(parameters("preact_resnet56") - parameters("preact_resnet20"), 6U * 97'216U);
}

// As the authors' code for CIFAR-10 has it.
TEST(ZooTest, CountsTheParametersOfDensenet40) {
  EXPECT_EQ(layout_of(make_model("densenet40_12")).parameter_count, 1'019'722U);
}

TEST(ZooTest, NamesResnetsByTheirLayers) {
  for (const auto& [name, layers] : {std::pair{"resnet8", 7U}, std::pair{"resnet110", 109U}}) {
    const Model model = make_model(name);
    const auto convolutions = std::ranges::count_if(model.layers, [](const LayerSpec& layer) {
      const auto* convolution = layer.kind.get_if<ConvolutionLayer>();
      return convolution != nullptr && convolution->kernel == 3;
    });

    EXPECT_EQ(model.name, name);
    EXPECT_EQ(convolutions, layers);  // and a fully connected one
  }
}

TEST(ZooTest, NamesAndShapesParametersAsTorchvisionDoes) {
  const ParameterLayout layout = layout_of(make_model("resnet20"));

  EXPECT_THAT(find(layout.parameters, "conv1.weight").shape, ElementsAre(16, 3, 3, 3));
  EXPECT_THAT(find(layout.parameters, "layer1.2.bn2.bias").shape, ElementsAre(16));
  EXPECT_THAT(find(layout.parameters, "layer2.0.conv1.weight").shape, ElementsAre(32, 16, 3, 3));
  EXPECT_THAT(find(layout.parameters, "layer3.0.downsample.0.weight").shape,
              ElementsAre(64, 32, 1, 1));
  EXPECT_THAT(find(layout.statistics, "layer3.0.downsample.1.running_var").shape, ElementsAre(64));
  EXPECT_THAT(find(layout.parameters, "fc.weight").shape, ElementsAre(10, 64));
}

TEST(ZooTest, HalvesTheImageTwiceInResnet20) {
  const std::vector<tensor::Shape> shapes = shapes_of(make_model("resnet20"), 4);

  EXPECT_EQ(shapes.front(), (tensor::Shape{4, 32, 32, 3}));
  EXPECT_EQ(shapes[shapes.size() - 3], (tensor::Shape{4, 8, 8, 64}));
  EXPECT_EQ(shapes.back(), (tensor::Shape{4, 1, 1, 10}));
}

TEST(ZooTest, TakesOtherImagesAndClasses) {
  const Model model = make_model("lenet5", {0, 32, 32, 3}, 100);
  const ParameterLayout layout = layout_of(model);

  EXPECT_THAT(find(layout.parameters, "conv1.weight").shape, ElementsAre(6, 3, 5, 5));
  EXPECT_THAT(find(layout.parameters, "fc1.weight").shape, ElementsAre(120, 16 * 6 * 6));
  EXPECT_THAT(find(layout.parameters, "fc3.weight").shape, ElementsAre(100, 84));
}

TEST(ZooTest, ListsTheNamesWhenThereIsNoSuchModel) {
  EXPECT_THAT(
      [] { (void)make_model("lenet6"); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("there are: lenet5, resnet8, resnet20, ")));
}

TEST(ZooTest, RefusesImagesThatAreTooSmall) {
  EXPECT_THAT([] { (void)make_model("lenet5", {0, 6, 6, 1}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("layer conv2")));
}

// Whatever a model is: groups and parameters cover the flat array densely, in forward order.
class EveryModelTest : public testing::TestWithParam<std::string> {};

TEST_P(EveryModelTest, LaysParametersOutDensely) {
  const ParameterLayout layout = layout_of(make_model(GetParam()));

  std::size_t end = 0;
  for (const Parameter& parameter : layout.parameters) {
    EXPECT_EQ(parameter.offset, end) << parameter.name;
    end += parameter.size();
  }

  EXPECT_EQ(end, layout.parameter_count);
}

TEST_P(EveryModelTest, MakesOneGroupOfEachLayersParameters) {
  const ParameterLayout layout = layout_of(make_model(GetParam()));

  std::size_t end = 0;
  for (const ParameterBlock& group : layout.blocks) {
    EXPECT_EQ(group.offset, end) << group.name;
    EXPECT_GT(group.size, 0U) << group.name;
    end += group.size;
  }

  EXPECT_EQ(end, layout.parameter_count);
}

TEST_P(EveryModelTest, GivesEveryParameterANameOfItsOwn) {
  const ParameterLayout layout = layout_of(make_model(GetParam()));

  std::set<std::string> names;
  for (const Parameter& parameter : layout.parameters) names.insert(parameter.name);

  EXPECT_EQ(names.size(), layout.parameters.size());
}

std::string test_name(const testing::TestParamInfo<std::string>& tested) {
  std::string name = tested.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryModelTest, testing::ValuesIn(model_names()), test_name);

}  // namespace
}  // namespace rondo::train::zoo_test
