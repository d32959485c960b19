// One step of a whole network: what it promises its caller, slopes, PyTorch's numbers, and
// threads.

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/executor.hpp>
#include <rondo/train/step_profile.hpp>

#include "train/support/network.hpp"

namespace rondo::train::executor_test {
namespace {

using test::make_samples;
using test::Network;
using test::Recorder;
using test::Samples;
using testing::Each;

// The promises of a step: order of calls, sums over samples, empty batches, evaluation.

constexpr double rounding = 2e-5;  // relative, for sums in another order

Network lenet(std::vector<std::int64_t> batches) {
  return {make_model("lenet5"), {.training_batches = std::move(batches), .evaluation_batch = 4}};
}

TEST(ExecutorTest, TellsTheObserverInTheOrderOfThePasses) {
  Network net(make_model("lenet5"), {.training_batches = {2}});
  const Samples samples = make_samples(net.model, 2);
  Recorder recorder;

  net.executor.train(samples.batch(), recorder);

  EXPECT_THAT(
      recorder.calls,
      testing::ElementsAre("ready 0", "between", "between", "ready 1", "between", "between",
                           "ready 2", "between", "ready 3", "between", "ready 4", "between",  //
                           "final 4", "between", "final 3", "between", "final 2", "between",
                           "between", "final 1", "between", "between", "final 0", "between"));
}

// Does nothing but to name a profile.
class Profiled final : public StepObserver {
 public:
  explicit Profiled(StepProfile& profile) : profile_(profile) {}
  void make_ready(std::size_t /*block*/) override {}
  void gradients_final(std::size_t /*block*/) override {}
  void between_layers() override {}
  [[nodiscard]] StepProfile* profile() override { return &profile_; }

 private:
  StepProfile& profile_;
};

TEST(ExecutorTest, NotesTheTimesOfEveryLayerInTheProfilesSteps) {
  Network net(make_model("lenet5"), {.training_batches = {2}});
  const Samples samples = make_samples(net.model, 2);
  StepProfile profile(2, 2);
  Profiled observer(profile);

  for (int step = 1; step <= 3; ++step) {
    const StepProfile::Step whole(&profile, step);
    net.executor.train(samples.batch(), observer);
  }

  std::map<std::string, int> count;
  for (const StepProfile::Span& span : profile.spans()) ++count[span.part];
  const auto layers = static_cast<int>(net.model.layers.size());
  EXPECT_EQ(count["step"], 1);
  EXPECT_EQ(count["loss"], 1);
  EXPECT_EQ(count["forward"], layers);
  EXPECT_EQ(count["backward_parameters"], layers);
  EXPECT_EQ(count["pack"], 5);
  EXPECT_EQ(profile.spans().front().layer, "conv1");
}

TEST(ExecutorTest, TellsTheSameOfAnEmptyBatch) {
  Network net(make_model("resnet20"), {.training_batches = {2}, .evaluation_batch = 2});
  const Samples samples = make_samples(net.model, 2);
  Recorder full;
  Recorder empty;
  net.executor.train(samples.batch(), full);
  net.executor.train({}, empty);
  EXPECT_EQ(full.calls, empty.calls);
}

TEST(ExecutorTest, LeavesZeroGradientsAfterAnEmptyBatch) {
  Network net(test::small_residual_model(), {.training_batches = {2}});
  net.train(make_samples(net.model, 2).batch());
  const std::vector<float> statistics = net.statistics;
  const tensor::Loss loss = net.train({});
  EXPECT_EQ(loss.sum, 0.0);
  EXPECT_THAT(net.gradients, Each(0.0F));
  EXPECT_EQ(net.statistics, statistics);
}

TEST(ExecutorTest, SumsOverTheSamplesOfABatch) {
  Network net = lenet({1, 3});
  const Samples samples = make_samples(net.model, 3);
  std::vector<float> sum(net.layout.parameter_count, 0.0F);
  double loss = 0.0;
  for (std::int64_t i = 0; i < 3; ++i) {
    loss += net.train(samples.part(i, 1)).sum;
    std::ranges::transform(sum, net.gradients, sum.begin(), std::plus<>());
  }

  const tensor::Loss whole = net.train(samples.batch());

  EXPECT_NEAR(whole.sum, loss, rounding * loss);
  EXPECT_LT(test::relative_distance(net.gradients, sum), rounding);
}

TEST(ExecutorTest, EvaluatesWithoutTouchingAnyState) {
  Network net(test::small_residual_model(), {.training_batches = {4}, .evaluation_batch = 4});
  const Samples samples = make_samples(net.model, 4);
  net.train(samples.batch());
  const std::vector<float> parameters = net.parameters;
  const std::vector<float> gradients = net.gradients;
  const std::vector<float> statistics = net.statistics;

  net.evaluate(samples.batch());

  EXPECT_EQ(net.parameters, parameters);
  EXPECT_EQ(net.gradients, gradients);
  EXPECT_EQ(net.statistics, statistics);
}

TEST(ExecutorTest, EvaluatesWithTheParametersItIsGiven) {
  Network net = lenet({4});
  const Samples samples = make_samples(net.model, 4);
  const std::vector<float> zeros(net.layout.parameter_count, 0.0F);

  const tensor::Loss blank = net.executor.evaluate(samples.batch(), zeros, net.statistics);
  const tensor::Loss own = net.evaluate(samples.batch());
  const tensor::Loss trained = net.train(samples.batch());

  EXPECT_NEAR(blank.sum, 4.0 * std::log(10.0), rounding);
  EXPECT_NEAR(own.sum, trained.sum, rounding);
  EXPECT_NE(own.sum, blank.sum);
}

TEST(ExecutorTest, EvaluatesRemaindersLikeWholeBatches) {
  Network net(test::small_residual_model(), {.training_batches = {4}, .evaluation_batch = 4});
  const Samples samples = make_samples(net.model, 4);
  const tensor::Loss whole = net.evaluate(samples.batch());
  const tensor::Loss first = net.evaluate(samples.part(0, 3));
  const tensor::Loss second = net.evaluate(samples.part(3, 1));
  EXPECT_NEAR(first.sum + second.sum, whole.sum, rounding * whole.sum);
  EXPECT_EQ(first.correct + second.correct, whole.correct);
  EXPECT_EQ(net.executor.logits().size(), 3U);
}

TEST(ExecutorTest, TrainsAfterEvaluatingOtherParameters) {
  Network net(test::small_residual_model(), {.training_batches = {4}, .evaluation_batch = 4});
  const Samples samples = make_samples(net.model, 4);
  net.train(samples.batch());
  const std::vector<float> expected = net.gradients;
  const std::vector<float> zeros(net.layout.parameter_count, 0.0F);
  (void)net.executor.evaluate(samples.batch(), zeros, net.statistics);
  net.train(samples.batch());
  EXPECT_EQ(net.gradients, expected);
}

TEST(ExecutorTest, FollowsParametersThatChangeInMakeReady) {
  class Zeroing final : public StepObserver {
   public:
    explicit Zeroing(std::span<float> parameters) : parameters_(parameters) {}
    void make_ready(std::size_t block) override {
      if (block == 0) std::ranges::fill(parameters_, 0.0F);
    }
    void gradients_final(std::size_t /*block*/) override {}
    void between_layers() override {}

   private:
    std::span<float> parameters_;
  };
  Network net = lenet({4});
  Zeroing zeroing(net.parameters);

  const tensor::Loss loss = net.executor.train(make_samples(net.model, 4).batch(), zeroing);

  EXPECT_NEAR(loss.sum, 4.0 * std::log(10.0), rounding);
}

TEST(ExecutorTest, RefusesBatchesItWasNotMadeFor) {
  Network net = lenet({2});
  const Samples samples = make_samples(net.model, 5);
  EXPECT_THROW(net.train(samples.part(0, 3)), std::invalid_argument);
  EXPECT_THROW(net.evaluate(samples.batch()), std::invalid_argument);
}

TEST(ExecutorTest, RefusesBatchesWhoseArraysDoNotFit) {
  Network net = lenet({2});
  const Samples samples = make_samples(net.model, 3);
  Batch batch = samples.part(0, 2);
  batch.images = samples.images;
  EXPECT_THROW(net.train(batch), std::invalid_argument);
}

// A wrong memory format falls back to a kernel several hundred times slower, and nothing else
// would tell.
TEST(ExecutorTest, RunsNoReferenceKernelInTheZoo) {
  for (const std::string& name : test::quick_models()) {
    const Network net(make_model(name), {.training_batches = {64}, .evaluation_batch = 36});
    const std::vector<std::string> lines = net.executor.implementations();
    EXPECT_FALSE(lines.empty());
    EXPECT_THAT(lines, Each(testing::Not(testing::HasSubstr("ref")))) << name;
  }
}

// Finite differences of whole networks: the gradient of every parameter, through every layer.

constexpr std::int64_t samples_per_batch = 4;
constexpr float step = 4e-3F;
// Relative to the largest slope in the block: the loss is computed in fp32, and differences of two
// losses keep about three digits.
constexpr double slope_tolerance = 1e-2;

double loss_with(Network& net, const Samples& samples, std::size_t element, float value) {
  const float old = std::exchange(net.parameters[element], value);
  const double loss = net.train(samples.batch()).sum;
  net.parameters[element] = old;
  return loss;
}

double slope(Network& net, const Samples& samples, std::size_t element) {
  const float at = net.parameters[element];
  const double above = loss_with(net, samples, element, at + step);
  const double below = loss_with(net, samples, element, at - step);
  return (above - below) / (2.0 * static_cast<double>(step));
}

double largest(std::span<const float> values) {
  double result = 0.0;
  for (const float value : values) result = std::max(result, std::abs(static_cast<double>(value)));
  return result;
}

void expect_gradients_are_slopes(Model model) {
  Network net(std::move(model), {.training_batches = {samples_per_batch}});
  const Samples samples = make_samples(net.model, samples_per_batch);
  net.train(samples.batch());
  const std::vector<float> gradients = net.gradients;

  for (const Parameter& parameter : net.layout.parameters) {
    const double scale =
        std::max(0.1, largest(std::span(gradients).subspan(parameter.offset, parameter.size())));
    const std::size_t stride = std::max<std::size_t>(1, parameter.size() / 16);
    for (std::size_t i = 0; i < parameter.size(); i += stride) {
      const std::size_t element = parameter.offset + i;
      EXPECT_NEAR(slope(net, samples, element), static_cast<double>(gradients[element]),
                  slope_tolerance * scale)
          << parameter.name << " element " << i;
    }
  }
}

TEST(GradientTest, AgreesWithSlopesThroughShortcutsAndBatchNorm) {
  expect_gradients_are_slopes(test::small_residual_model());
}

TEST(GradientTest, AgreesWithSlopesThroughBiasesPoolingAndFullyConnected) {
  Model model{.name = "plain", .input = {1, 8, 8, 1}, .classes = 3};
  model.layers = {
      {"conv1", ConvolutionLayer{.filters = 4, .bias = true}, {0}},
      {"pool1", PoolingLayer{.kind = tensor::PoolingKind::average}, {1}},
      {"conv2", ConvolutionLayer{.filters = 6, .padding = 0, .bias = true}, {2}},
      {"fc1", FullyConnectedLayer{.outputs = 5}, {3}},
      {"fc2", FullyConnectedLayer{.outputs = 3}, {4}},
  };

  expect_gradients_are_slopes(model);
}

// Values with several readers, layers with several inputs, and a dropout that drops the same each
// time: all calls are of one step.
TEST(GradientTest, AgreesWithSlopesThroughSumsConcatenationsGroupsAndDropout) {
  Model model{.name = "joined", .input = {1, 6, 6, 4}, .classes = 3};
  model.layers = {
      {"groups", ConvolutionLayer{.filters = 8, .groups = 2, .bias = true}, {0}},
      {"depthwise", ConvolutionLayer{.filters = 8, .groups = 8}, {1}},
      {"sum", AddLayer{}, {1, 2, 1}},
      {"joined", ConcatLayer{}, {1, 3, 2, 0}},
      {"drop", DropoutLayer{.probability = 0.25}, {4}},
      {"conv", ConvolutionLayer{.filters = 6, .stride = 2}, {5}},
      {"bn", BatchNormLayer{.activation = tensor::Activation::none}, {6}},
      {"twice", AddLayer{}, {7, 7}},
      {"wide", ConcatLayer{}, {8, 7}},
      {"pool", GlobalAveragePoolingLayer{}, {9}},
      {"fc", FullyConnectedLayer{.outputs = 3}, {10}},
  };

  expect_gradients_are_slopes(model);
}

// Compares one step with PyTorch 1.13.1 in double precision: the same networks, parameters
// sin(0.7 * element + index of the parameter) scaled per kind, images of make_samples(), summed
// cross-entropy with label smoothing 0.1.

constexpr std::int64_t images = 4;
constexpr double pytorch_tolerance = 2e-4;  // relative; fp32 through 20 layers against double

struct Expected {
  const char* name;
  double norm;
};

constexpr double lenet5_loss = 9.95965403;
constexpr Expected lenet5_gradients[] = {
    {"conv1.weight", 0.06139472}, {"conv1.bias", 0.005488701}, {"conv2.weight", 0.2902493},
    {"conv2.bias", 0.04223895},   {"fc1.weight", 3.539396},    {"fc1.bias", 0.215452},
    {"fc2.weight", 1.676699},     {"fc2.bias", 1.851467},      {"fc3.weight", 2.900235},
    {"fc3.bias", 1.585563},
};

constexpr double resnet20_loss = 10.3860219;
constexpr Expected resnet20_gradients[] = {
    {"conv1.weight", 0.1287234},
    {"bn1.weight", 0.07489215},
    {"bn1.bias", 0.09285863},
    {"layer1.0.conv1.weight", 0.5152206},
    {"layer1.2.bn2.bias", 0.04367218},
    {"layer2.0.downsample.0.weight", 0.3726116},
    {"layer2.0.downsample.1.weight", 0.09147647},
    {"layer2.0.conv1.weight", 0.6754349},
    {"layer3.0.downsample.0.weight", 1.881979},
    {"layer3.2.conv2.weight", 0.8762329},
    {"layer3.2.bn2.weight", 0.6973047},
    {"fc.weight", 16.5858},
    {"fc.bias", 1.73878},
};
constexpr Expected resnet20_statistics[] = {
    {"bn1.running_mean", 0.002418356},
    {"bn1.running_var", 5.59609},
    {"layer2.0.downsample.1.running_mean", 0.5349625},
    {"layer2.0.downsample.1.running_var", 5.614367},
    {"layer3.2.bn2.running_mean", 0.4309513},
    {"layer3.2.bn2.running_var", 12.1125},
};

float formula(const Parameter& parameter, std::size_t index, std::size_t element) {
  const double wave = std::sin(0.7 * static_cast<double>(element) + static_cast<double>(index));
  if (parameter.shape.size() > 1) {
    return static_cast<float>(wave * std::sqrt(2.0 / static_cast<double>(parameter.fan_in)));
  }
  const bool scale = parameter.initial == Initial::ones;
  return static_cast<float>(scale ? 1.0 + 0.2 * wave : 0.1 * wave);
}

void fill(Network& net) {
  for (std::size_t i = 0; i < net.layout.parameters.size(); ++i) {
    const Parameter& parameter = net.layout.parameters[i];
    for (std::size_t j = 0; j < parameter.size(); ++j) {
      net.parameters[parameter.offset + j] = formula(parameter, i, j);
    }
  }
}

Network smoothed(const char* name) {
  return {make_model(name), {.training_batches = {images}, .label_smoothing = 0.1F}};
}

void expect_norms(std::span<const Expected> expected, const std::vector<Parameter>& entries,
                  std::span<const float> flat) {
  for (const Expected& one : expected) {
    for (const Parameter& entry : entries) {
      if (entry.name != one.name) continue;
      EXPECT_NEAR(test::norm(flat.subspan(entry.offset, entry.size())) / one.norm, 1.0,
                  pytorch_tolerance)
          << one.name;
    }
  }
}

TEST(PytorchTest, AgreesOnLenet5) {
  Network net = smoothed("lenet5");
  fill(net);
  const tensor::Loss loss = net.train(make_samples(net.model, images).batch());
  EXPECT_NEAR(loss.sum / lenet5_loss, 1.0, pytorch_tolerance);
  expect_norms(lenet5_gradients, net.layout.parameters, net.gradients);
}

TEST(PytorchTest, AgreesOnResnet20) {
  Network net = smoothed("resnet20");
  fill(net);
  const tensor::Loss loss = net.train(make_samples(net.model, images).batch());
  EXPECT_NEAR(loss.sum / resnet20_loss, 1.0, pytorch_tolerance);
  expect_norms(resnet20_gradients, net.layout.parameters, net.gradients);
  expect_norms(resnet20_statistics, net.layout.statistics, net.statistics);
}

// Several threads compute what one does, to rounding_of_threads.

constexpr double rounding_of_threads =
    1e-3;  // relative, of gradients through 20 layers and batch norms
constexpr std::int64_t images_of_threads = 6;

class ThreadsTest : public testing::TestWithParam<std::string> {};

TEST_P(ThreadsTest, ChangeTheGradientsByRoundingOnly) {
  test::Network one(make_model(GetParam()), {.training_batches = {images_of_threads}}, 1);
  const test::Samples data = test::make_samples(one.model, images_of_threads);
  const tensor::Loss expected = one.train(data.batch());

  for (const int threads : {2, 3}) {
    test::Network several(make_model(GetParam()), {.training_batches = {images_of_threads}},
                          threads);
    const tensor::Loss loss = several.train(data.batch());

    EXPECT_NEAR(loss.sum / expected.sum, 1.0, rounding_of_threads) << threads;
    EXPECT_LT(test::relative_distance(several.gradients, one.gradients), rounding_of_threads)
        << threads;
    EXPECT_EQ(loss.correct, expected.correct) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ThreadsTest, testing::ValuesIn(test::quick_models()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace rondo::train::executor_test
