// The networks for ImageNet's images: parameters as published, shapes, and a step on smaller
// images, where a step takes little time.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>

#include "train/support/network.hpp"

namespace rondo::train::large_models_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// What torchvision publishes; alexnet-2012: its 62,367,776 weights and 10,568 biases.
const std::vector<std::pair<std::string, std::size_t>> published = {
    {"alexnet", 61'100'840},         {"alexnet-2012", 62'378'344}, {"vgg11", 132'863'336},
    {"vgg11_bn", 132'868'840},       {"vgg16", 138'357'544},       {"vgg16_bn", 138'365'992},
    {"resnet18", 11'689'512},        {"resnet34", 21'797'672},     {"resnet50", 25'557'032},
    {"wide_resnet50_2", 68'883'240}, {"densenet121", 7'978'856},   {"mobilenet_v2", 3'504'872}};

std::vector<std::int64_t> shape_of(const std::string& model, const std::string& parameter) {
  for (const Parameter& entry : layout_of(make_model(model)).parameters) {
    if (entry.name == parameter) return entry.shape;
  }
  return {};
}

// The shape of what the layer writes.
tensor::Shape output_of(const std::string& name, const std::string& layer) {
  const Model model = make_model(name);
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].name == layer) return shapes[i + 1];
  }
  return {};
}

TEST(LargeModelsTest, HaveAsManyParametersAsPublished) {
  for (const auto& [name, parameters] : published) {
    EXPECT_EQ(layout_of(make_model(name)).parameter_count, parameters) << name;
  }
}

TEST(LargeModelsTest, NameTheLayersOfAlexnetAsTorchvisionDoes) {
  EXPECT_THAT(shape_of("alexnet", "features.0.weight"), ElementsAre(64, 3, 11, 11));
  EXPECT_THAT(shape_of("alexnet", "features.10.bias"), ElementsAre(256));
  EXPECT_THAT(shape_of("alexnet", "classifier.1.weight"), ElementsAre(4096, 9216));
  EXPECT_THAT(shape_of("alexnet", "classifier.6.weight"), ElementsAre(1000, 4096));
}

TEST(LargeModelsTest, NameTheLayersOfVggAsTorchvisionDoes) {
  EXPECT_THAT(shape_of("vgg11", "features.18.weight"), ElementsAre(512, 512, 3, 3));
  EXPECT_THAT(shape_of("vgg11_bn", "features.25.weight"), ElementsAre(512, 512, 3, 3));
  EXPECT_THAT(shape_of("vgg16", "features.28.weight"), ElementsAre(512, 512, 3, 3));
  EXPECT_THAT(shape_of("vgg16_bn", "features.41.weight"), ElementsAre(512));
  EXPECT_THAT(shape_of("vgg16", "classifier.0.weight"), ElementsAre(4096, 25088));
  EXPECT_THAT(shape_of("vgg16", "classifier.3.weight"), ElementsAre(4096, 4096));
}

TEST(LargeModelsTest, NameTheLayersOfResnetsAsTorchvisionDoes) {
  EXPECT_THAT(shape_of("resnet18", "conv1.weight"), ElementsAre(64, 3, 7, 7));
  EXPECT_THAT(shape_of("resnet18", "layer1.0.downsample.0.weight"), ElementsAre());
  EXPECT_THAT(shape_of("resnet34", "layer3.5.conv2.weight"), ElementsAre(256, 256, 3, 3));
  EXPECT_THAT(shape_of("resnet50", "layer1.0.downsample.0.weight"), ElementsAre(256, 64, 1, 1));
  EXPECT_THAT(shape_of("resnet50", "layer4.2.bn3.weight"), ElementsAre(2048));
  EXPECT_THAT(shape_of("wide_resnet50_2", "layer4.0.conv2.weight"), ElementsAre(1024, 1024, 3, 3));
  EXPECT_THAT(shape_of("wide_resnet50_2", "fc.weight"), ElementsAre(1000, 2048));
}

TEST(LargeModelsTest, NameTheLayersOfDensenetAndMobilenetAsTorchvisionDoes) {
  EXPECT_THAT(shape_of("densenet121", "features.conv0.weight"), ElementsAre(64, 3, 7, 7));
  EXPECT_THAT(shape_of("densenet121", "features.denseblock4.denselayer16.conv2.weight"),
              ElementsAre(32, 128, 3, 3));
  EXPECT_THAT(shape_of("densenet121", "features.transition3.conv.weight"),
              ElementsAre(512, 1024, 1, 1));
  EXPECT_THAT(shape_of("densenet121", "classifier.weight"), ElementsAre(1000, 1024));
  EXPECT_THAT(shape_of("mobilenet_v2", "features.1.conv.0.0.weight"), ElementsAre(32, 1, 3, 3));
  EXPECT_THAT(shape_of("mobilenet_v2", "features.2.conv.1.0.weight"), ElementsAre(96, 1, 3, 3));
  EXPECT_THAT(shape_of("mobilenet_v2", "features.17.conv.3.weight"), ElementsAre(320));
  EXPECT_THAT(shape_of("mobilenet_v2", "features.18.0.weight"), ElementsAre(1280, 320, 1, 1));
  EXPECT_THAT(shape_of("mobilenet_v2", "classifier.1.weight"), ElementsAre(1000, 1280));
}

TEST(LargeModelsTest, HalveImagesWhereTheOriginalsDo) {
  EXPECT_EQ(output_of("densenet121", "features.norm5"), (tensor::Shape{1, 7, 7, 1024}));
  EXPECT_EQ(output_of("mobilenet_v2", "features.18.2"), (tensor::Shape{1, 7, 7, 1280}));
  EXPECT_EQ(output_of("alexnet", "features.0"), (tensor::Shape{1, 55, 55, 64}));
  EXPECT_EQ(output_of("alexnet", "features.12"), (tensor::Shape{1, 6, 6, 256}));
  EXPECT_EQ(output_of("alexnet-2012", "conv1"), (tensor::Shape{1, 55, 55, 96}));
  EXPECT_EQ(output_of("alexnet-2012", "pool5"), (tensor::Shape{1, 6, 6, 256}));
  EXPECT_EQ(output_of("vgg16", "features.30"), (tensor::Shape{1, 7, 7, 512}));
  EXPECT_EQ(output_of("resnet50", "maxpool"), (tensor::Shape{1, 56, 56, 64}));
  EXPECT_EQ(output_of("resnet50", "layer2.0.conv1"), (tensor::Shape{1, 56, 56, 128}));
  EXPECT_EQ(output_of("resnet50", "layer4.2.bn3"), (tensor::Shape{1, 7, 7, 2048}));
}

TEST(LargeModelsTest, RefuseImagesThatAreTooSmall) {
  EXPECT_THAT([] { (void)make_model("alexnet", {0, 32, 32, 3}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("layer features.12")));
}

// One design each: basic blocks, bottlenecks, padded pooling, long chains with and without batch
// norm.
class LargeModelStepTest : public testing::TestWithParam<std::pair<std::string, std::int64_t>> {};

TEST_P(LargeModelStepTest, GivesEveryParameterAGradientByFastKernels) {
  const auto& [name, extent] = GetParam();
  test::Network net(make_model(name, {0, extent, extent, 3}, 10), {.training_batches = {2}});

  const tensor::Loss loss = net.train(test::make_samples(net.model, 2).batch());

  EXPECT_TRUE(std::isfinite(loss.sum));
  EXPECT_THAT(net.executor.implementations(), Each(Not(HasSubstr("ref"))));
  for (const Parameter& parameter : net.layout.parameters) {
    EXPECT_GT(test::norm(net.parameter(parameter.name, net.gradients)), 0.0) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(SmallImages, LargeModelStepTest,
                         testing::Values(std::pair{"alexnet", 64}, std::pair{"vgg11", 32},
                                         std::pair{"resnet18", 64}, std::pair{"resnet50", 64},
                                         std::pair{"densenet121", 32},
                                         std::pair{"mobilenet_v2", 32}),
                         [](const auto& tested) { return tested.param.first; });

}  // namespace
}  // namespace rondo::train::large_models_test
