// A loss from outside of the library: a run uses it for what it trains and for what it evaluates;
// and the xtensor expressions that such a program looks at batches and parameters with.

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/xview.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/resumed_runs.hpp"

namespace rondo::train::own_loss_test {
namespace {

using test::train_once;
using testing::HasSubstr;

Experiment experiment() {
  Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.data.training = 96;
  experiment.data.test = 40;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 32;
  experiment.train.epochs = 1;
  experiment.optimizer.weight_decay = 0.0;
  return experiment;
}

// Softmax cross-entropy times `factor`.
LossFunction scaled(float factor, std::atomic<int>& images) {
  return [factor, &images](const LossOperands& operands) {
    tensor::Engine engine;
    tensor::Loss loss = tensor::softmax_cross_entropy(engine, operands.logits, operands.labels,
                                                      0.0F, operands.gradient, operands.mixed);
    loss.sum *= static_cast<double>(factor);
    if (operands.gradient.data != nullptr) tensor::xmatrix(operands.gradient) *= factor;
    images += static_cast<int>(operands.labels.size());
    return loss;
  };
}

// By a power of two, so that the bits of gradients and parameters are those of a rate that is twice
// as large.
TEST(OwnLossTest, TrainsAndEvaluatesByTheLossThatTheProgramBrings) {
  Experiment wanted = experiment();
  std::atomic<int> images = 0;
  wanted.optimizer.learning_rate = 0.01;
  const EpochMetrics own = train_once(2, wanted, {.loss = scaled(2.0F, images)});
  EXPECT_EQ(images, 96 + 40);
  wanted.optimizer.learning_rate = 0.02;
  const EpochMetrics usual = train_once(2, wanted, {});

  EXPECT_EQ(own.parameter_hash, usual.parameter_hash);
  EXPECT_EQ(own.accuracy, usual.accuracy);
  EXPECT_DOUBLE_EQ(own.loss, 2.0 * usual.loss);
  EXPECT_DOUBLE_EQ(own.test_loss, 2.0 * usual.test_loss);
}

// On a grid whose ranks have the logits of some images each.
TEST(OwnLossTest, IsCalledForTheImagesWhoseLogitsARankHas) {
  Experiment wanted = experiment();
  std::atomic<int> images = 0;
  wanted.grid.height = 2;
  wanted.grid.layers = {{"fc3", "sample"}};
  const EpochMetrics own = train_once(2, wanted, {.loss = scaled(1.0F, images)});
  EXPECT_EQ(images, 96 + 40);
  EXPECT_EQ(own.parameter_hash, train_once(2, wanted, {}).parameter_hash);
}

TEST(OwnLossTest, RefusesLabelSmoothingAndALossOfSomeRanks) {
  std::atomic<int> images = 0;
  Experiment smooth = experiment();
  smooth.train.label_smoothing = 0.1;
  test::expect_refusal<ConfigError>(2, smooth, {.loss = scaled(1.0F, images)},
                                    HasSubstr("train.label_smoothing"));
  rondo::test::World{2}.run([&](transport::World& world) {
    const LossFunction of_one = world.rank() == 1 ? scaled(1.0F, images) : LossFunction{};
    EXPECT_THAT(
        rondo::test::error_text<ConfigError>([&] { train(world, experiment(), {.loss = of_one}); }),
        HasSubstr("TrainerOptions::loss"));
  });
}

TEST(XviewTest, OfABatchHasTheShapeOfItsPart) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const Batch batch{.samples = 2, .images = values, .part = Box{{0, 2}, {3, 4}, {0, 2}, {0, 2}}};
  const auto images = xview(batch);
  EXPECT_THAT(images.shape(), testing::ElementsAre(2, 1, 2, 2));
  EXPECT_EQ(images(1, 0, 1, 0), 7.0F);
}

TEST(XviewTest, OfAParameterReadsAndWritesItsPlaceInTheArray) {
  std::vector<float> array(10, 1.0F);
  const Parameter filters{.name = "conv.weight", .shape = {2, 3}, .offset = 4};
  xview(filters, std::span(array)).fill(5.0F);
  EXPECT_THAT(array, testing::ElementsAre(1, 1, 1, 1, 5, 5, 5, 5, 5, 5));
  array[8] = 9.0F;
  EXPECT_EQ(xview(filters, std::span<const float>(array))(1, 1), 9.0F);
}

}  // namespace
}  // namespace rondo::train::own_loss_test
