// Inference with batch norm folded into convolutions: the same logits, fewer layers, no labels.

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/predictor.hpp>

#include "train/support/network.hpp"
#include "train/support/own_layer.hpp"

namespace rondo::train::predictor_test {
namespace {

constexpr std::int64_t images = 3;

std::size_t count_norms(const Model& model) {
  return static_cast<std::size_t>(std::ranges::count_if(
      model.layers, [](const LayerSpec& layer) { return layer.kind->traits().batch_statistics; }));
}

// After two steps: running values, scales and shifts are no longer those of the beginning.
TrainedModel train(const Model& model) {
  test::Network net(model, {.training_batches = {4}});
  const test::Samples samples = test::make_samples(model, 4);
  for (int step = 0; step < 2; ++step) {
    net.train(samples.batch());
    for (std::size_t i = 0; i < net.parameters.size(); ++i) {
      net.parameters[i] -= 0.01F * net.gradients[i];
    }
  }
  return {model, net.parameters, net.statistics};
}

std::vector<float> unfolded(const TrainedModel& trained, const test::Samples& samples) {
  test::Network net(trained.model, {.training_batches = {images}});
  net.executor.evaluate(samples.batch(), trained.parameters, trained.statistics);
  const auto logits = net.executor.logits();
  return {logits.begin(), logits.end()};
}

class PredictorTest : public testing::TestWithParam<std::string> {};

TEST_P(PredictorTest, GivesTheLogitsOfTheUnfoldedModel) {
  const Model model = make_model(GetParam(), {0, 32, 32, GetParam() == "lenet5" ? 1 : 3}, 10);
  const TrainedModel trained = train(model);
  const test::Samples samples = test::make_samples(model, images);
  tensor::Engine engine;
  Predictor predictor(engine, trained, images);

  const std::vector<float> expected = unfolded(trained, samples);
  const auto logits = predictor.logits(samples.images, images);

  ASSERT_EQ(logits.size(), expected.size());
  // Many of MobileNet's 52 convolutions give little more than the mean that is taken off again.
  const double tolerance = GetParam() == "mobilenet_v2" ? 5e-4 : 1e-5;
  EXPECT_LT(test::relative_distance(logits, expected), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Zoo, PredictorTest,
                         testing::Values("lenet5", "resnet20", "preact_resnet20", "vgg11_bn",
                                         "mobilenet_v2"));

TEST(FoldingTest, LeavesNoBatchNormOfAResnet) {
  const TrainedModel folded = fold_batch_norms(train(make_model("resnet8")));

  EXPECT_EQ(count_norms(folded.model), 0U);
  EXPECT_TRUE(folded.statistics.empty());
}

TEST(FoldingTest, KeepsWhatStandsInFrontOfAConvolutionOrHasOtherReaders) {
  Model model{.name = "kept", .input = {1, 4, 4, 2}, .classes = 2};
  model.layers = {
      {"before", BatchNormLayer{}, {0}},
      {"shared", ConvolutionLayer{.filters = 2}, {1}},
      {"norm", BatchNormLayer{}, {2}},
      {"sum", AddLayer{}, {2, 3}},
      {"rectified", ConvolutionLayer{.filters = 2, .activation = tensor::Activation::relu}, {4}},
      {"behind", BatchNormLayer{}, {5}},
      {"fc", FullyConnectedLayer{.outputs = 2}, {6}}};

  EXPECT_EQ(count_norms(fold_batch_norms(train(model)).model), 3U);
}

TEST(FoldingTest, ScalesTheBiasThatAConvolutionHas) {
  Model model{.name = "biased", .input = {1, 4, 4, 2}, .classes = 3};
  model.layers = {{"conv", ConvolutionLayer{.filters = 4, .bias = true}, {0}},
                  {"norm", BatchNormLayer{}, {1}},
                  {"drop", DropoutLayer{}, {2}},
                  {"fc", FullyConnectedLayer{.outputs = 3}, {3}}};
  const TrainedModel trained = train(model);
  const test::Samples samples = test::make_samples(model, images);
  tensor::Engine engine;
  Predictor predictor(engine, trained, images);

  EXPECT_LT(
      test::relative_distance(predictor.logits(samples.images, images), unfolded(trained, samples)),
      1e-5);
  EXPECT_EQ(predictor.model().layers.size(), 2U);
}

// Folding does not know what a program's layer with statistics of batches computes.
TEST(FoldingTest, KeepsALayerOfAProgramThatTakesStatistics) {
  const test::OwnLayer norm{.traits = LayerTraits{.batch_statistics = true},
                            .learned = {{.name = "gamma", .shape = {4}, .initial = Initial::ones}}};
  Model model{.name = "own", .input = {1, 4, 4, 2}, .classes = 3};
  model.layers = {{"conv", ConvolutionLayer{.filters = 4}, {0}},
                  {"norm", norm, {1}},
                  {"fc", FullyConnectedLayer{.outputs = 3}, {2}}};
  const ParameterLayout layout = layout_of(model);

  const TrainedModel folded =
      fold_batch_norms({model, std::vector<float>(layout.parameter_count, 1.0F), {}});

  EXPECT_EQ(count_norms(folded.model), 1U);
}

TEST(FoldingTest, PredictsOtherNumbersOfImagesInTurn) {
  const Model model = make_model("resnet8");
  const test::Samples samples = test::make_samples(model, images);
  const TrainedModel trained = train(model);
  tensor::Engine engine;
  Predictor predictor(engine, trained, images);
  const std::vector<std::int64_t> all = predictor.classes(samples.images, images);

  const auto first = predictor.classes(samples.part(0, 1).images, 1);
  const auto again = predictor.classes(samples.images, images);

  EXPECT_EQ(again, all);
  EXPECT_EQ(first.front(), all.front());
  EXPECT_THROW(static_cast<void>(predictor.logits(samples.images, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::predictor_test
