// Which elements dropout drops: the share that was asked for, the same for all who hold the
// element, others in every step and layer, and none in evaluation.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/model.hpp>

#include "train/support/network.hpp"

namespace rondo::train::dropout_test {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::ElementsAreArray;
using testing::Ne;

constexpr tensor::Shape shape = {6, 5, 7, 3};

// The output for an input of ones.
std::vector<float> drop(double probability, const RandomKey& key, tensor::Shape of = shape,
                        int threads = 1) {
  tensor::Engine engine(threads);
  const LayerKind layer = DropoutLayer{.probability = probability};
  const auto kernel = layer->kernel(engine, of, true, KernelPurpose::training);
  const std::vector<float> x(static_cast<std::size_t>(of.size()), 1.0F);
  std::vector<float> y(x.size());
  const tensor::View<const float> from = {x.data(), of};
  const tensor::View<float> into = {y.data(), of};
  kernel->forward_training({.x = from, .y = into, .random = key}, {});
  return y;
}

TEST(DropoutTest, DropsTheShareThatWasAskedForAndScalesTheRest) {
  const std::vector<float> y = drop(0.25, {.layer = 5}, {1, 100, 100, 10});

  EXPECT_THAT(y, Each(AnyOf(0.0F, 1.0F / 0.75F)));
  EXPECT_NEAR(static_cast<double>(std::ranges::count(y, 0.0F)), 25'000.0, 5.0 * 137.0);
}

TEST(DropoutTest, DropsNothingWithProbabilityZero) {
  EXPECT_THAT(drop(0.0, {.layer = 5}), Each(1.0F));
}

TEST(DropoutTest, DropsOthersInAnotherStepAndLayer) {
  const std::vector<float> y = drop(0.5, {.layer = 5, .step = 3});

  EXPECT_THAT(drop(0.5, {.layer = 5, .step = 3}), ElementsAreArray(y));
  EXPECT_THAT(drop(0.5, {.layer = 5, .step = 4}), Ne(y));
  EXPECT_THAT(drop(0.5, {.layer = 6, .step = 3}), Ne(y));
}

TEST(DropoutTest, DropsTheSameOfAPartOfTheBatch) {
  const std::vector<float> whole = drop(0.5, {.layer = 5, .first_sample = 10});

  const std::vector<float> part = drop(0.5, {.layer = 5, .first_sample = 12}, shape.with_n(3));

  const auto expected =
      std::span(whole).subspan(2 * static_cast<std::size_t>(shape.image()), part.size());
  EXPECT_THAT(part, ElementsAreArray(expected.begin(), expected.end()));
}

TEST(DropoutTest, DropsTheSameWithMoreThreads) {
  EXPECT_EQ(drop(0.5, {.layer = 5}, shape, 3), drop(0.5, {.layer = 5}));
}

Model model(double probability) {
  ModelBuilder builder("drops", {1, 4, 4, 2}, 3);
  ValueId x = builder.add("drop", DropoutLayer{.probability = probability}, ModelBuilder::input);
  x = builder.add("fc", FullyConnectedLayer{.outputs = 3}, x);
  return builder.finish();
}

TEST(DropoutTest, LeavesEvaluationAlone) {
  test::Network drops(model(0.5), {.training_batches = {4}});
  test::Network keeps(model(0.0), {.training_batches = {4}});
  const test::Samples samples = test::make_samples(drops.model, 4);

  EXPECT_EQ(drops.evaluate(samples.batch()).sum, keeps.evaluate(samples.batch()).sum);
  EXPECT_NE(drops.train(samples.batch()).sum, keeps.train(samples.batch()).sum);
}

// As ranks do that share a batch.
TEST(DropoutTest, PartsOfABatchHaveTheLossOfTheWhole) {
  test::Network whole(model(0.5), {.training_batches = {4}});
  test::Network parts(model(0.5), {.training_batches = {1, 3}});
  const test::Samples samples = test::make_samples(whole.model, 4);
  const double expected = whole.executor.train(samples.batch(), whole.silent, {.step = 7}).sum;

  const double first = parts.executor.train(samples.part(0, 1), parts.silent, {.step = 7}).sum;
  const double rest =
      parts.executor.train(samples.part(1, 3), parts.silent, {.step = 7, .first_sample = 1}).sum;

  EXPECT_NEAR(first + rest, expected, 1e-5 * expected);
}

}  // namespace
}  // namespace rondo::train::dropout_test
