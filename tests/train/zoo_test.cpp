// The models that come with the library: their shapes and parameters, what shapes_of() refuses,
// large models, and the model that compare runs are timed with.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>
#include <rondo/train/model_benchmark.hpp>

#include "support/error_text.hpp"
#include "train/support/network.hpp"

namespace rondo::train::zoo_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

// The networks that make_model() knows: what they learn and how their shapes go.

/// The shape of a parameter or a statistic; empty if there is none of that name.
std::vector<std::int64_t> shape_of(const ParameterLayout& layout, const std::string& name) {
  for (const auto* all : {&layout.parameters, &layout.statistics}) {
    const auto found = std::ranges::find(*all, name, &Parameter::name);
    if (found != all->end()) return found->shape;
  }
  return {};
}

/// Parameters as torchvision publishes them; as the authors' code of densenet40_12 has it for
/// CIFAR-10; by PyTorch for resnet20 with projection shortcuts; others by hand. alexnet-2012 has
/// 62,367,776 weights and 10,568 biases. For CIFAR-10 deeper networks have more blocks in the three
/// stages, of 4,672 + 18,560 + 73,984 parameters.
TEST(ZooTest, HasAsManyParametersAsPublished) {
  constexpr std::size_t resnet20 = 272'474;
  constexpr std::size_t blocks = 97'216;
  // Convolutions; two batch norms a block and one at the end; shortcuts; the classifier.
  constexpr std::size_t preact_resnet20 =
      432 + 6 * 2'304 + (4'608 + 5 * 9'216) + (18'432 + 5 * 36'864) +
      2 * (6 * 16 + (16 + 5 * 32) + (32 + 5 * 64) + 64) + 512 + 2'048 + 650;
  const std::pair<const char*, std::size_t> counts[] = {
      {"lenet5", 61'706},
      {"resnet8", resnet20 - 2 * blocks},
      {"resnet20", resnet20},
      {"resnet32", resnet20 + 2 * blocks},
      {"resnet56", resnet20 + 6 * blocks},
      {"resnet110", resnet20 + 15 * blocks},
      {"preact_resnet20", preact_resnet20},
      {"preact_resnet56", preact_resnet20 + 6 * blocks},
      {"densenet40_12", 1'019'722},
      {"alexnet", 61'100'840},
      {"alexnet-2012", 62'378'344},
      {"vgg11", 132'863'336},
      {"vgg11_bn", 132'868'840},
      {"vgg16", 138'357'544},
      {"vgg16_bn", 138'365'992},
      {"resnet18", 11'689'512},
      {"resnet34", 21'797'672},
      {"resnet50", 25'557'032},
      {"wide_resnet50_2", 68'883'240},
      {"densenet121", 7'978'856},
      {"mobilenet_v2", 3'504'872}};
  for (const auto& [name, parameters] : counts) {
    EXPECT_EQ(layout_of(make_model(name)).parameter_count, parameters) << name;
  }
  EXPECT_EQ(layout_of(make_model("lenet5")).statistic_count, 0U);
  EXPECT_EQ(layout_of(make_model("lenet5")).blocks.size(), 5U);
  EXPECT_EQ(layout_of(make_model("resnet20")).statistic_count, 2U * (7 * 16 + 7 * 32 + 7 * 64));
  EXPECT_EQ(layout_of(make_model("resnet20")).blocks.size(), 21U + 21U + 1U);
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

struct Named {
  const char* model;
  const char* parameter;
  std::vector<std::int64_t> shape;
};

TEST(ZooTest, NamesAndShapesParametersAsTorchvisionDoes) {
  const Named all[] = {
      {"resnet20", "conv1.weight", {16, 3, 3, 3}},
      {"resnet20", "layer1.2.bn2.bias", {16}},
      {"resnet20", "layer2.0.conv1.weight", {32, 16, 3, 3}},
      {"resnet20", "layer3.0.downsample.0.weight", {64, 32, 1, 1}},
      {"resnet20", "layer3.0.downsample.1.running_var", {64}},
      {"resnet20", "fc.weight", {10, 64}},
      {"alexnet", "features.0.weight", {64, 3, 11, 11}},
      {"alexnet", "features.10.bias", {256}},
      {"alexnet", "classifier.1.weight", {4096, 9216}},
      {"alexnet", "classifier.6.weight", {1000, 4096}},
      {"vgg11", "features.18.weight", {512, 512, 3, 3}},
      {"vgg11_bn", "features.25.weight", {512, 512, 3, 3}},
      {"vgg16", "features.28.weight", {512, 512, 3, 3}},
      {"vgg16_bn", "features.41.weight", {512}},
      {"vgg16", "classifier.0.weight", {4096, 25088}},
      {"vgg16", "classifier.3.weight", {4096, 4096}},
      {"resnet18", "conv1.weight", {64, 3, 7, 7}},
      {"resnet18", "layer1.0.downsample.0.weight", {}},  // there is none
      {"resnet34", "layer3.5.conv2.weight", {256, 256, 3, 3}},
      {"resnet50", "layer1.0.downsample.0.weight", {256, 64, 1, 1}},
      {"resnet50", "layer1.0.downsample.1.weight", {256}},
      {"resnet50", "layer4.2.bn3.weight", {2048}},
      {"wide_resnet50_2", "layer4.0.conv2.weight", {1024, 1024, 3, 3}},
      {"wide_resnet50_2", "fc.weight", {1000, 2048}},
      {"densenet121", "features.conv0.weight", {64, 3, 7, 7}},
      {"densenet121", "features.denseblock4.denselayer16.conv2.weight", {32, 128, 3, 3}},
      {"densenet121", "features.transition3.conv.weight", {512, 1024, 1, 1}},
      {"densenet121", "classifier.weight", {1000, 1024}},
      {"mobilenet_v2", "features.1.conv.0.0.weight", {32, 1, 3, 3}},
      {"mobilenet_v2", "features.2.conv.1.0.weight", {96, 1, 3, 3}},
      {"mobilenet_v2", "features.17.conv.3.weight", {320}},
      {"mobilenet_v2", "features.18.0.weight", {1280, 320, 1, 1}},
      {"mobilenet_v2", "classifier.1.weight", {1000, 1280}},
  };
  for (const auto& [model, parameter, shape] : all) {
    EXPECT_EQ(shape_of(layout_of(make_model(model)), parameter), shape) << model << parameter;
  }
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
  EXPECT_THAT(shape_of(layout, "conv1.weight"), ElementsAre(6, 3, 5, 5));
  EXPECT_THAT(shape_of(layout, "fc1.weight"), ElementsAre(120, 16 * 6 * 6));
  EXPECT_THAT(shape_of(layout, "fc3.weight"), ElementsAre(100, 84));
}

// Ranks compare descriptions, and a resumed run does.
TEST(ZooTest, DescribesTheMomentumOfBatchNorm) {
  const auto description = [](const BatchNormLayer& norm) {
    return description_of(
        {.name = "test",
         .input = {1, 4, 4, 2},
         .classes = 2,
         .layers = {{"norm", norm, {0}}, {"fc", FullyConnectedLayer{.outputs = 2}, {1}}}});
  };
  EXPECT_NE(description({}), description({.momentum = 0.05F}));
}

TEST(ZooTest, ListsTheNamesWhenThereIsNoSuchModel) {
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([] { (void)make_model("lenet6"); }),
              HasSubstr("there are: lenet5, resnet8, resnet20, "));
}

TEST(ZooTest, RefusesImagesThatAreTooSmall) {
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [] { (void)make_model("lenet5", {0, 6, 6, 1}); }),
              HasSubstr("layer conv2"));
}

// Whatever a model is: blocks and parameters cover the flat array densely, in forward order.
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
  for (const ParameterBlock& block : layout.blocks) {
    EXPECT_EQ(block.offset, end) << block.name;
    EXPECT_GT(block.size, 0U) << block.name;
    end += block.size;
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

// Models that shapes_of() refuses: each message names the layer and says what is wrong.

constexpr FullyConnectedLayer classes{.outputs = 2};
constexpr BatchNormLayer sum{.residual = true};

// Layers, and the layer and the reason that the answer names.
struct Mistake {
  const char* name;
  std::vector<LayerSpec> layers;
  const char* layer;
  const char* reason;
};

class ShapesTest : public testing::TestWithParam<Mistake> {};

TEST_P(ShapesTest, AreRefused) {
  const Model model{
      .name = "test", .input = {1, 4, 4, 1}, .classes = 2, .layers = GetParam().layers};
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] { (void)shapes_of(model, 1); }),
              testing::AllOf(HasSubstr(GetParam().layer), HasSubstr(GetParam().reason)));
}

INSTANTIATE_TEST_SUITE_P(
    , ShapesTest,
    testing::Values(Mistake{"WithoutLayers", {}, "", ""},
                    Mistake{"OfPoolingWithPaddingLikeItsWindow",
                            {{"pool", PoolingLayer{.window = 2, .stride = 2, .padding = 2}, {0}},
                             {"fc", classes, {1}}},
                            "layer pool",
                            "its padding must be less than its window"},
                    Mistake{"OfAValueThatNobodyHasWritten",
                            {{"fc", classes, {1}}},
                            "layer fc",
                            "no earlier layer writes"},
                    Mistake{
                        "WithAResidualOfAnotherShape",
                        {{"pool", PoolingLayer{}, {0}}, {"bn", sum, {1, 0}}, {"fc", classes, {2}}},
                        "layer bn",
                        "adds 4x4x1 to 2x2x1"},
                    Mistake{"WithoutAResidual",
                            {{"bn", sum, {0}}, {"fc", classes, {1}}},
                            "layer bn",
                            "has 1 inputs and needs 2"},
                    Mistake{"WithAWindowLargerThanItsInput",
                            {{"pool", PoolingLayer{.window = 5}, {0}}, {"fc", classes, {1}}},
                            "layer pool",
                            "window is larger"},
                    Mistake{"WithAnOutputThatNobodyReads",
                            {{"pool", PoolingLayer{}, {0}}, {"fc", classes, {0}}},
                            "layer pool",
                            "no layer reads"},
                    Mistake{"WithLogitsThatAreNotOnePerClass",
                            {{"fc", FullyConnectedLayer{.outputs = 3}, {0}}},
                            "layer fc",
                            "its 2 classes"}),
    [](const auto& mistake) { return std::string(mistake.param.name); });

// The networks for ImageNet's images: shapes, and a step on smaller images, where a step takes
// little time.

// The shape of what the layer writes.
tensor::Shape output_of(const std::string& name, const std::string& layer) {
  const Model model = make_model(name);
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].name == layer) return shapes[i + 1];
  }
  return {};
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
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [] { (void)make_model("alexnet", {0, 32, 32, 3}); }),
              HasSubstr("layer features.12"));
}

// One design each: basic blocks, bottlenecks, padded pooling, long chains with and without batch
// norm.
class LargeModelStepTest : public testing::TestWithParam<std::pair<std::string, std::int64_t>> {};

TEST_P(LargeModelStepTest, GivesEveryParameterAGradientByFastKernels) {
  const auto& [name, extent] = GetParam();
  test::Network net(make_model(name, {0, extent, extent, 3}, 10), {.training_batches = {2}});
  const tensor::Loss loss = net.train(test::make_samples(net.model, 2).batch());
  EXPECT_TRUE(std::isfinite(loss.sum));
  EXPECT_THAT(net.executor.implementations(), testing::Each(testing::Not(HasSubstr("ref"))));
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

// The parts of `rondo bench model`: a row for every kernel, and sums that agree with them.

std::set<std::string> rows_of(const PrimitiveTimes& times) {
  std::set<std::string> rows;
  for (const KernelTime& kernel : times.kernels) rows.insert(kernel.layer + " " + kernel.direction);
  return rows;
}

TEST(ModelBenchmarkTest, TimesEveryKernelOfAStep) {
  const PrimitiveTimes times = measure_primitives(make_model("lenet5"), 2, 1);
  EXPECT_THAT(rows_of(times),
              IsSupersetOf({"conv1 forward", "conv1 backward_weights", "pool1 forward",
                            "pool1 backward_data", "conv2 backward_data", "fc3 backward_weights",
                            "loss forward", "sgd update"}));
  EXPECT_THAT(rows_of(times), testing::Not(testing::Contains("conv1 backward_data")));
}

TEST(ModelBenchmarkTest, TimesTheSameKernelsWithColdCaches) {
  const Model model = make_model("lenet5");

  EXPECT_EQ(rows_of(measure_primitives(model, 2, 1, tensor::DataType::f32, KernelCaches::cold)),
            rows_of(measure_primitives(model, 2, 1)));
}

TEST(ModelBenchmarkTest, TimesBatchNormOfBothKinds) {
  Model model{.name = "norms", .input = {1, 8, 8, 16}, .classes = 2};
  model.layers = {{"bn1", BatchNormLayer{}, {0}},
                  {"bn2", BatchNormLayer{.residual = true}, {1, 0}},
                  {"pool", GlobalAveragePoolingLayer{}, {2}},
                  {"fc", FullyConnectedLayer{.outputs = 2}, {3}}};
  const PrimitiveTimes times = measure_primitives(model, 4, 1);
  EXPECT_THAT(rows_of(times),
              IsSupersetOf({"bn1 forward", "bn1 backward", "bn2 forward", "bn2 backward"}));
}

TEST(ModelBenchmarkTest, SumsItsRows) {
  PrimitiveTimes times{.batch = 10, .threads = 1};
  times.kernels = {{.layer = "a", .microseconds = 30.0}, {.layer = "b", .microseconds = 70.0}};
  EXPECT_DOUBLE_EQ(times.microseconds(), 100.0);
  EXPECT_DOUBLE_EQ(times.images_per_second(), 100'000.0);
}

TEST(ModelBenchmarkTest, NamesTheKernelsOfOnednn) {
  const PrimitiveTimes times = measure_primitives(make_model("lenet5"), 2, 1);
  for (const KernelTime& kernel : times.kernels) {
    EXPECT_GT(kernel.microseconds, 0.0) << kernel.layer;
    EXPECT_FALSE(kernel.implementation.empty()) << kernel.layer;
    EXPECT_EQ(kernel.implementation.find("ref"), std::string::npos) << kernel.layer;
  }
}

TEST(ModelBenchmarkTest, TimesTheOptimizerThatIsAsked) {
  using enum OptimizerName;
  for (const OptimizerName name : {sgd, lars, adam, adamw}) {
    const PrimitiveTimes times =
        measure_primitives(make_model("lenet5"), 2, 1, tensor::DataType::f32, KernelCaches::warm,
                           {.optimizer = {.name = name}});
    EXPECT_THAT(rows_of(times), testing::Contains(name_of(name) + " update"));
  }
}

TEST(ModelBenchmarkTest, TimesAWholeStep) {
  Model model{.name = "tiny", .input = {1, 4, 4, 8}, .classes = 2};
  model.layers = {{"fc", FullyConnectedLayer{.outputs = 2}, {0}}};
  const StepTime time = measure_step(model, 3, 1);
  EXPECT_GT(time.microseconds, 0.0);
  EXPECT_DOUBLE_EQ(time.images_per_second(), 3e6 / time.microseconds);
}

}  // namespace
}  // namespace rondo::train::zoo_test
