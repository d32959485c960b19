// Training in bf16: steps are those of fp32 but for rounding, runs learn under every scheme, and
// what bf16 cannot do is refused with the key. Where the CPU does not compute bf16, only refusals
// are tested.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/error_text.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/support/network.hpp"

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
  for (const char* scheme : {"synchronous", "lazy", "k_step", "hierarchical", "cyclic"}) {
    Experiment experiment = test::small_experiment();
    experiment.data.training = 1000;
    experiment.train.max_steps = 0;
    experiment.train.epochs = 4;
    experiment.update.scheme = scheme;
    experiment.update.warmup_epochs = 0.0;
    experiment.update.lazy_layers = "2";
    experiment.update.period = 4;
    experiment.update.local_period = 2;
    experiment.train.precision = "bf16";

    const Outcome outcome = train_on(2, experiment);

    EXPECT_GE(outcome.metrics.at(0).accuracy, 80.0) << scheme;
    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0))) << scheme;
  }
}

TEST_F(Bf16TrainingTest, SumsMicroBatches) {
  Experiment experiment = test::small_experiment();
  experiment.train.precision = "bf16";
  experiment.train.accumulate = 3;
  const Outcome outcome = train_on(2, experiment);
  EXPECT_EQ(outcome.summaries.at(0).steps, 5);
}

// Refusals.

Experiment in_bf16() {
  Experiment experiment = test::small_experiment();
  experiment.train.precision = "bf16";
  return experiment;
}

// Of the first rank; all of them refuse.
std::string refusal(const Experiment& experiment, int ranks = 2) {
  std::string first;
  rondo::test::World{ranks}.run([&](transport::World& world) {
    const std::string text =
        error_text<ConfigError>([&] { return train(world, experiment, TrainerOptions{}); });
    if (world.rank() == 0) first = text;
  });
  return first;
}

TEST(Bf16RefusalTest, NamesTheKeyWhereRanksSplitLayers) {
  Experiment by_filter = in_bf16();
  by_filter.grid.filter = 2;
  Experiment by_row = in_bf16();
  by_row.grid.height = 2;
  Experiment chosen = in_bf16();
  chosen.grid.plan = "auto";
  Experiment shared = in_bf16();
  shared.grid.batch_norm = "all";
  for (const Experiment& experiment : {by_filter, by_row, chosen, shared}) {
    EXPECT_THAT(refusal(experiment),
                AllOf(StartsWith("train.precision: "), HasSubstr("split samples alone"),
                      HasSubstr("set train.precision = \"fp32\"")));
  }
}

TEST(Bf16RefusalTest, SaysWhatTheProcessorLacks) {
  if (tensor::computes_bf16()) GTEST_SKIP() << "this CPU computes bf16";
  EXPECT_THAT(refusal(in_bf16(), 1),
              AllOf(StartsWith("train.precision: bf16 needs a CPU with AVX512_BF16 or AMX"),
                    HasSubstr("train.precision = \"fp32\"")));
}

}  // namespace
}  // namespace rondo::train::bf16_test
