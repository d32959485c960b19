// FullyConnected against plain loops: exact, because all values are small whole numbers.

#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference.hpp"

namespace rondo::tensor::fully_connected_test {
namespace {

using test::whole_tensor;
using test::whole_values;
using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;
using testing::Values;

struct Trial {
  explicit Trial(const FullyConnectedSpec& given, int threads = 1)
      : spec(given),
        engine(threads),
        layer(engine, spec),
        x(whole_tensor(spec.input, 1)),
        dy(whole_tensor(spec.output(), 2)),
        weights(whole_values(spec.weights(), 3)),
        bias(whole_values(spec.bias ? spec.outputs : 0, 4)) {
    layer.pack_weights(weights);
  }

  FullyConnectedSpec spec;
  Engine engine;
  FullyConnected layer;
  Tensor x, dy;
  std::vector<float> weights, bias;
};

void expect_forward(const FullyConnectedSpec& spec) {
  Trial trial(spec);
  Tensor y(trial.spec.output());
  trial.layer.forward(trial.x.view(), trial.bias, y.view());
  EXPECT_THAT(
      y.span(),
      ElementsAreArray(
          reference::fully_connected(trial.spec, trial.x, trial.weights, trial.bias).span()));
}

// Input of one image, outputs, images.
class FullyConnectedTest
    : public testing::TestWithParam<std::tuple<Shape, std::int64_t, std::int64_t>> {
 protected:
  [[nodiscard]] static FullyConnectedSpec spec() {
    const auto [input, outputs, images] = GetParam();
    return {.input = input.with_n(images), .outputs = outputs};
  }
};

TEST_P(FullyConnectedTest, ForwardEqualsPlainLoops) { expect_forward(spec()); }

TEST_P(FullyConnectedTest, ReluIsFusedIntoForward) {
  auto rectified = spec();
  rectified.activation = Activation::relu;
  expect_forward(rectified);
}

TEST_P(FullyConnectedTest, BackwardEqualsPlainLoops) {
  Trial trial(spec());
  Tensor dx(trial.spec.input);
  std::vector<float> dw(trial.weights.size());
  std::vector<float> db(trial.bias.size());
  trial.layer.backward_data(trial.dy.view(), dx.view());
  trial.layer.backward_weights(trial.x.view(), trial.dy.view(), db);
  trial.layer.unpack_gradients(dw);
  EXPECT_THAT(
      dx.span(),
      ElementsAreArray(
          reference::fully_connected_backward_data(trial.spec, trial.dy, trial.weights).span()));
  EXPECT_EQ(dw, reference::fully_connected_backward_weights(trial.spec, trial.x, trial.dy));
  EXPECT_EQ(db, reference::bias_gradient(trial.dy));
}

TEST_P(FullyConnectedTest, UsesNoReferenceKernel) {
  Engine engine;
  for (const std::int64_t images : {1, 3, 64, 128}) {
    FullyConnectedSpec other = spec();
    other.input.n = images;
    EXPECT_THAT(FullyConnected(engine, other).implementation(), Not(HasSubstr("ref")));
  }
}

TEST_P(FullyConnectedTest, ThreadsAgreeOnWholeNumbers) {
  Trial one(spec());
  Trial two(spec(), 2);
  Tensor a(one.spec.output());
  Tensor b(one.spec.output());
  one.layer.forward(one.x.view(), one.bias, a.view());
  two.layer.forward(two.x.view(), two.bias, b.view());
  EXPECT_THAT(a.span(), ElementsAreArray(b.span()));
}

INSTANTIATE_TEST_SUITE_P(LeNet5, FullyConnectedTest,
                         testing::Combine(Values(Shape{1, 5, 5, 16}), Values(120),
                                          Values(1, 3, 64)));
INSTANTIATE_TEST_SUITE_P(Vectors, FullyConnectedTest,
                         testing::Combine(Values(Shape{1, 1, 1, 120}, Shape{1, 1, 1, 64},
                                                 Shape{1, 1, 1, 7}),
                                          Values(10, 84, 1), Values(1, 64)));
INSTANTIATE_TEST_SUITE_P(OddImages, FullyConnectedTest,
                         testing::Combine(Values(Shape{1, 3, 2, 5}, Shape{1, 4, 1, 3}), Values(9),
                                          Values(2)));

TEST(FullyConnectedSharingTest, AnotherBatchSizeReadsTheSameWeights) {
  Trial trial({.input = {64, 5, 5, 16}, .outputs = 120});
  FullyConnected last(trial.layer, 3);
  trial.layer.pack_weights(trial.weights);
  Tensor y(trial.spec.output());
  Tensor few(last.spec().output());
  trial.layer.forward(trial.x.view(), trial.bias, y.view());
  last.forward(trial.x.first(3), trial.bias, few.view());
  EXPECT_THAT(few.span(), ElementsAreArray(y.span().first(few.span().size())));
}

TEST(FullyConnectedEdgeTest, AnEmptyBatchLeavesZeroGradients) {
  Trial trial({.input = {0, 2, 2, 3}, .outputs = 4});
  std::vector<float> dw(trial.weights.size(), 7.0F);
  std::vector<float> db(4, 7.0F);
  Tensor dx(trial.spec.input);
  trial.layer.forward(trial.x.view(), trial.bias, trial.dy.view());
  trial.layer.backward_data(trial.dy.view(), dx.view());
  trial.layer.backward_weights(trial.x.view(), trial.dy.view(), db);
  trial.layer.unpack_gradients(dw);
  EXPECT_THAT(dw, Each(0.0F));
  EXPECT_THAT(db, Each(0.0F));
}

TEST(FullyConnectedEdgeTest, RefusesWrongArguments) {
  Engine engine;
  EXPECT_THROW(FullyConnected(engine, {.input = {1, 1, 1, 0}, .outputs = 4}),
               std::invalid_argument);
  EXPECT_THROW(FullyConnected(engine, {.input = {1, 1, 1, 4}, .outputs = 0}),
               std::invalid_argument);
  Trial trial({.input = {2, 1, 1, 3}, .outputs = 4});
  EXPECT_THROW(trial.layer.pack_weights(std::vector<float>(11)), std::invalid_argument);
  EXPECT_THROW(trial.layer.forward(trial.x.view(), std::vector<float>(3), trial.dy.view()),
               std::invalid_argument);
  EXPECT_THROW(trial.layer.forward(trial.x.first(1), trial.bias, trial.dy.view()),
               std::invalid_argument);
}

TEST(FullyConnectedKernelsTest, HasNoGradientOfWeightsUnlessWanted) {
  Engine engine;
  FullyConnected layer(
      engine, {.input = {2, 1, 1, 8}, .outputs = 4, .weight_gradient = WeightGradient::unused});
  Tensor x({2, 1, 1, 8});
  Tensor dy({2, 1, 1, 4});
  std::vector<float> weights(32);

  EXPECT_THROW(layer.backward_weights(x.view(), dy.view(), {}), std::invalid_argument);
  EXPECT_THROW(layer.unpack_gradients(weights), std::invalid_argument);
  EXPECT_THAT(layer.implementation(), Not(HasSubstr("weights")));
}

TEST(FullyConnectedKernelsTest, SharesWeightsWithItsLikesAlone) {
  Engine engine;
  FullyConnected layer(engine, {.input = {2, 1, 1, 8}, .outputs = 4});
  EXPECT_NO_THROW(FullyConnected(layer, FullyConnectedSpec{.input = {3, 1, 1, 8}, .outputs = 4}));
  EXPECT_THROW(FullyConnected(layer, FullyConnectedSpec{.input = {2, 1, 1, 9}, .outputs = 4}),
               std::invalid_argument);
  EXPECT_THROW(FullyConnected(layer, FullyConnectedSpec{.input = {2, 1, 1, 8}, .outputs = 5}),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tensor::fully_connected_test
