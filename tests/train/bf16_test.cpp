// Training in bf16: steps are those of fp32 but for rounding, runs learn under every scheme, and
// what bf16 cannot do is refused with the key. Where the CPU does not compute bf16, only refusals
// are tested.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/support/network.hpp"
#include "train/support/own_layer.hpp"

namespace rondo::train::bf16_test {
namespace {

using rondo::test::error_text;
using tensor::DataType;
using test::Network;
using test::Outcome;
using test::relative_distance;
using test::train_on;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

// A rounding loses up to 1/512 of a number. Errors of layers add up like independent ones, and
// batch norm over few samples enlarges them.
constexpr double of_a_loss = 0.02;
constexpr double of_gradients = 0.15;

class Bf16TrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!tensor::computes_bf16()) GTEST_SKIP() << "this CPU does not compute bf16";
  }
};

Network network_of(const std::string& model, DataType precision, std::int64_t batch) {
  return {make_model(model), {.training_batches = {batch}, .precision = precision}};
}

TEST_F(Bf16TrainingTest, StepsAreThoseOfFp32ButForRounding) {
  constexpr std::int64_t batch = 16;
  for (const char* model : {"lenet5", "resnet8"}) {
    Network exact = network_of(model, DataType::f32, batch);
    Network rounded = network_of(model, DataType::bf16, batch);
    const auto samples = test::make_samples(exact.model, batch);

    const double exact_loss = exact.train(samples.batch()).sum;
    const double rounded_loss = rounded.train(samples.batch()).sum;

    EXPECT_NEAR(rounded_loss, exact_loss, of_a_loss * exact_loss) << model;
    EXPECT_LT(relative_distance(rounded.gradients, exact.gradients), of_gradients) << model;
    EXPECT_NE(rounded.gradients, exact.gradients) << model << ": nothing was rounded";
  }
}

// Single gradients of deep networks over few samples say little, but the loss says more.
TEST_F(Bf16TrainingTest, EveryKindOfModelTrains) {
  constexpr std::int64_t batch = 4;
  constexpr double of_a_deep_loss = 0.1;
  for (const char* model : {"preact_resnet20", "densenet40_12", "mobilenet_v2"}) {
    Model small = make_model(model, {1, 32, 32, 3}, 10);
    Network exact{small, {.training_batches = {batch}}};
    Network rounded{small, {.training_batches = {batch}, .precision = DataType::bf16}};
    const auto samples = test::make_samples(small, batch);

    const double exact_loss = exact.train(samples.batch()).sum;

    EXPECT_NEAR(rounded.train(samples.batch()).sum, exact_loss, of_a_deep_loss * exact_loss)
        << model;
    const double exact_norm = test::norm(exact.gradients);
    EXPECT_NEAR(test::norm(rounded.gradients), exact_norm, 0.5 * exact_norm) << model;
  }
}

// Values that bf16 holds without rounding: both types then compute the same.
struct LayerResults {
  LayerResults(const LayerKind& kind, const std::vector<tensor::Shape>& shapes, DataType type);

  std::vector<float> y = {};
  std::vector<std::vector<float>> dx = {};
  std::vector<float> gradients = {};
};

// Small whole numbers, as many for all types.
std::vector<float> whole_numbers(std::int64_t count, std::int64_t seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((i * 7 + seed * 5 + i / 11) % 9 - 3));
  }
  return values;
}

tensor::AnyTensor typed(tensor::Engine& engine, const std::vector<float>& values,
                        const tensor::Shape& shape, DataType type) {
  tensor::AnyTensor tensor(shape, type);
  tensor::convert(engine, tensor::View<const float>(values.data(), shape), tensor.view());
  return tensor;
}

std::vector<float> widened(tensor::Engine& engine, const tensor::AnyTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape().size()));
  tensor::convert(engine, tensor.view(), tensor::View<float>(values.data(), tensor.shape()));
  return values;
}

LayerResults::LayerResults(const LayerKind& kind, const std::vector<tensor::Shape>& shapes,
                           DataType type) {
  tensor::Engine engine(2);
  const auto kernel = type == DataType::f32
                          ? kind->kernel(engine, shapes[0], true, KernelPurpose::training)
                          : kind->bf16_kernel(engine, shapes[0], true, KernelPurpose::training);
  if (kernel == nullptr) throw std::runtime_error(kind->text() + " has no kernel");
  std::vector<tensor::AnyTensor> x;
  std::vector<tensor::AnyTensor> into;
  std::vector<tensor::ConstAnyView> inputs;
  std::vector<tensor::AnyView> input_gradients;
  for (const tensor::Shape& shape : shapes) {
    const auto seed = static_cast<std::int64_t>(x.size());
    x.push_back(typed(engine, whole_numbers(shape.size(), seed), shape, type));
    into.emplace_back(shape, type);
    inputs.emplace_back(x.back().view());
    input_gradients.push_back(into.back().view());
  }
  const tensor::Shape output =
      shapes.size() > 1 ? kind->output_of(shapes) : kind->output(shapes[0]);
  const std::vector<float> parameters = whole_numbers(kind->weights(shapes[0]), 3);
  gradients.resize(parameters.size());
  tensor::AnyTensor out(output, type);
  tensor::AnyTensor dy = typed(engine, whole_numbers(output.size(), 4), output, type);
  const RandomKey random{.layer = 5};
  kernel->load(parameters);
  kernel->forward_training({.x = inputs[0],
                            .y = out.view(),
                            .parameters = parameters,
                            .inputs = inputs,
                            .random = random},
                           {});
  const BackwardOperands operands{.x = inputs[0],
                                  .y = out.view(),
                                  .dy = dy.view(),
                                  .dx = input_gradients[0],
                                  .parameters = parameters,
                                  .gradients = gradients,
                                  .input_gradients = input_gradients,
                                  .random = random};
  kernel->backward_parameters(operands);
  kernel->backward_input(operands);
  y = widened(engine, out);
  for (const tensor::AnyTensor& gradient : into) dx.push_back(widened(engine, gradient));
}

TEST_F(Bf16TrainingTest, LayersAreExactWhereNothingIsRounded) {
  const auto relu = tensor::Activation::relu;
  const tensor::Shape shape = {3, 5, 7, 8};
  const std::vector<std::pair<LayerKind, std::vector<tensor::Shape>>> cases = {
      {AddLayer{}, {shape, shape}},
      {AddLayer{.activation = relu}, {shape, shape, shape}},
      {ConcatLayer{}, {shape, {3, 5, 7, 3}, {3, 5, 7, 1}}},
      {DropoutLayer{.probability = 0.5}, {shape}},
      {ActivationLayer{.function = Function::relu}, {shape}},
      {ActivationLayer{.function = Function::relu6}, {shape}},
      {ConvolutionLayer{.filters = 16, .kernel = 1, .padding = 0, .groups = 4}, {shape}},
      {ConvolutionLayer{.filters = 8, .kernel = 1, .padding = 0, .groups = 8}, {shape}},
  };
  for (const auto& [kind, shapes] : cases) {
    const LayerResults exact(kind, shapes, DataType::f32);
    const LayerResults rounded(kind, shapes, DataType::bf16);

    EXPECT_EQ(rounded.y, exact.y) << kind->text();
    EXPECT_EQ(rounded.gradients, exact.gradients) << kind->text();
    EXPECT_EQ(rounded.dx, exact.dx) << kind->text();
  }
}

// A kind that a program brings may be one for fp32 alone.
TEST_F(Bf16TrainingTest, RefusesALayerThatComputesInFp32Alone) {
  const test::OwnLayer narrow{
      .text = "fp32 only", .kernel = [](tensor::Engine& engine, const tensor::Shape& input) {
        return LayerKind(ActivationLayer{})->kernel(engine, input, true, KernelPurpose::training);
      }};
  ModelBuilder builder("own", {1, 4, 4, 8}, 10);
  const ValueId x = builder.add("own", narrow, ModelBuilder::input);
  builder.add("fc", FullyConnectedLayer{.outputs = 10}, x);
  EXPECT_THAT(error_text<std::invalid_argument>([&] {
                Network{builder.finish(), {.training_batches = {2}, .precision = DataType::bf16}};
              }),
              HasSubstr("\"fp32 only\" has no kernel for bf16"));
}

TEST_F(Bf16TrainingTest, EvaluatesLikeFp32AndGivesLogits) {
  constexpr std::int64_t batch = 12;
  Network exact = network_of("resnet8", DataType::f32, batch);
  Network rounded = network_of("resnet8", DataType::bf16, batch);
  const auto samples = test::make_samples(exact.model, batch);

  const double exact_loss = exact.evaluate(samples.batch()).sum;
  EXPECT_NEAR(rounded.evaluate(samples.batch()).sum, exact_loss, of_a_loss * exact_loss);
  EXPECT_LT(relative_distance(rounded.executor.logits(), exact.executor.logits()), of_a_loss);

  const double remainder = exact.evaluate(samples.part(3, 5)).sum;
  EXPECT_NEAR(rounded.evaluate(samples.part(3, 5)).sum, remainder, of_a_loss * remainder);
}

TEST_F(Bf16TrainingTest, InfersWhatItEvaluates) {
  const Model model = make_model("resnet8");
  const test::Samples samples = test::make_samples(model, 4);
  Network net(model, {.evaluation_batch = 4, .precision = DataType::bf16});
  net.executor.evaluate(samples.batch(), net.parameters, net.statistics);
  const auto evaluated = net.executor.logits();
  const std::vector<float> expected(evaluated.begin(), evaluated.end());
  Network other(model, {.evaluation_batch = 4, .precision = DataType::bf16});

  EXPECT_THAT(other.executor.infer(samples.images, 4), testing::ElementsAreArray(expected));
}

TEST_F(Bf16TrainingTest, GivesTheSameBitsEveryTime) {
  Network first = network_of("resnet8", DataType::bf16, 8);
  Network second = network_of("resnet8", DataType::bf16, 8);
  const auto samples = test::make_samples(first.model, 8);
  first.train(samples.batch());
  second.train(samples.batch());
  EXPECT_EQ(first.gradients, second.gradients);
  second.train(samples.batch());
  EXPECT_EQ(first.gradients, second.gradients);
}

TEST_F(Bf16TrainingTest, LearnsUnderEveryScheme) {
  for (const char* scheme :
       {"synchronous", "sharded", "lazy", "k_step", "hierarchical", "cyclic"}) {
    Experiment experiment = test::small_experiment();
    experiment.data.training = 1000;
    experiment.train.max_steps = 0;
    experiment.train.epochs = 4;
    experiment.update.scheme = scheme;
    experiment.update.warmup_epochs = 0.0;
    experiment.update.lazy_layers = "2";
    experiment.update.delay = sync::Delay::fixed;
    experiment.update.period = 4;
    experiment.update.local_period = 2;
    experiment.train.precision = tensor::DataType::bf16;

    const Outcome outcome = train_on(2, experiment);

    EXPECT_GE(outcome.metrics.at(0).accuracy, 80.0) << scheme;
    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0))) << scheme;
  }
}

TEST_F(Bf16TrainingTest, SumsMicroBatches) {
  Experiment experiment = test::small_experiment();
  experiment.train.precision = tensor::DataType::bf16;
  experiment.train.accumulate = 3;
  const Outcome outcome = train_on(2, experiment);
  EXPECT_EQ(outcome.summaries.at(0).steps, 5);
}

Experiment in_bf16() {
  Experiment experiment = test::small_experiment();
  experiment.train.precision = tensor::DataType::bf16;
  return experiment;
}

TEST_F(Bf16TrainingTest, LearnsOnEveryKindOfGrid) {
  Experiment::Grid shared;
  shared.batch_norm = BatchNormScope::all;
  Experiment::Grid chosen;
  chosen.plan = PlanChoice::automatic;
  for (const Experiment::Grid& grid : {Experiment::Grid{.channel = 2},
                                       {.filter = 2},
                                       {.height = 2},
                                       {.width = 2},
                                       shared,
                                       chosen}) {
    for (const char* scheme : {"synchronous", "k_step"}) {
      Experiment experiment = in_bf16();
      experiment.data.training = 1000;
      experiment.train.max_steps = 0;
      experiment.train.epochs = 4;
      experiment.update.scheme = scheme;
      experiment.update.warmup_epochs = 0.0;
      experiment.update.period = 4;
      experiment.grid = grid;

      EXPECT_GE(train_on(4, experiment).metrics.at(0).accuracy, 80.0) << scheme;
    }
  }
}

// Refusals.

// The refusal by the first rank; all ranks refuse.
std::string refusal(const Experiment& experiment, int ranks = 2) {
  std::string first;
  rondo::test::World{ranks}.run([&](transport::World& world) {
    const std::string text =
        error_text<ConfigError>([&] { return train(world, experiment, TrainerOptions{}); });
    if (world.rank() == 0) first = text;
  });
  return first;
}

TEST(Bf16RefusalTest, SaysWhatTheProcessorLacks) {
  if (tensor::computes_bf16()) GTEST_SKIP() << "this CPU computes bf16";
  EXPECT_THAT(refusal(in_bf16(), 1),
              AllOf(StartsWith("train.precision: bf16 needs a CPU with AVX512_BF16 or AMX"),
                    HasSubstr("train.precision = \"fp32\"")));
}

}  // namespace
}  // namespace rondo::train::bf16_test
