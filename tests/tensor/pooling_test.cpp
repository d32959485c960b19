// Pooling against plain loops.

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference.hpp"

namespace rondo::tensor::pooling_test {
namespace {

using test::relative_distance;
using test::whole_tensor;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

// Averages of 9 or 49 values are not whole.
constexpr double rounding = 1e-6;

// All values differ, so that every window has one maximum.
Tensor shuffled(const Shape& shape) {
  Tensor tensor(shape);
  std::iota(tensor.span().begin(), tensor.span().end(), -20.0F);
  std::ranges::shuffle(tensor.span(), std::mt19937(1));
  return tensor;
}

class PoolingTest : public testing::TestWithParam<PoolingSpec> {};

TEST_P(PoolingTest, ForwardEqualsPlainLoops) {
  const PoolingSpec spec = GetParam();
  Engine engine;
  Pooling layer(engine, spec);
  const Tensor x = shuffled(spec.input);
  Tensor y(spec.output());
  layer.forward(x.view(), y.view());
  EXPECT_LT(relative_distance(y.span(), reference::pooling(spec, x).span()), rounding);
}

TEST_P(PoolingTest, BackwardEqualsPlainLoops) {
  const PoolingSpec spec = GetParam();
  Engine engine;
  Pooling layer(engine, spec);
  const Tensor x = shuffled(spec.input);
  const Tensor dy = whole_tensor(spec.output(), 2);
  Tensor y(spec.output());
  Tensor dx(spec.input);
  layer.forward(x.view(), y.view());
  layer.backward(dy.view(), dx.view());
  EXPECT_LT(relative_distance(dx.span(), reference::pooling_backward(spec, x, dy).span()),
            rounding);
}

TEST_P(PoolingTest, ThreadsChangeNothing) {
  const PoolingSpec spec = GetParam();
  const Tensor x = shuffled(spec.input);
  const Tensor dy = whole_tensor(spec.output(), 2);
  Tensor y(spec.output());
  Tensor dx(spec.input);
  Tensor expected_y(spec.output());
  Tensor expected_dx(spec.input);
  const auto run = [&](int threads, Tensor& output, Tensor& gradient) {
    Engine engine(threads);
    Pooling layer(engine, spec);
    layer.forward(x.view(), output.view());
    layer.backward(dy.view(), gradient.view());
  };

  run(1, expected_y, expected_dx);
  run(2, y, dx);

  EXPECT_THAT(y.span(), ElementsAreArray(expected_y.span()));
  EXPECT_THAT(dx.span(), ElementsAreArray(expected_dx.span()));
}

TEST_P(PoolingTest, UsesNoReferenceKernel) {
  Engine engine;
  for (const std::int64_t images : {1, 3, 64, 128}) {
    PoolingSpec spec = GetParam();
    spec.input.n = images;
    EXPECT_THAT(Pooling(engine, spec).implementation(), Not(HasSubstr("ref")));
  }
}

INSTANTIATE_TEST_SUITE_P(LeNet5, PoolingTest,
                         testing::Values(PoolingSpec{.input = {3, 28, 28, 6}},
                                         PoolingSpec{.input = {3, 10, 10, 16}}));
INSTANTIATE_TEST_SUITE_P(GlobalAverage, PoolingTest,
                         testing::Values(PoolingSpec{.input = {3, 8, 8, 64},
                                                     .kind = PoolingKind::average,
                                                     .window_h = 8,
                                                     .window_w = 8},
                                         PoolingSpec{.input = {2, 7, 7, 24},
                                                     .kind = PoolingKind::average,
                                                     .window_h = 7,
                                                     .window_w = 7}));
INSTANTIATE_TEST_SUITE_P(Padded, PoolingTest,
                         testing::Values(PoolingSpec{.input = {2, 9, 9, 16},
                                                     .window_h = 3,
                                                     .window_w = 3,
                                                     .pad_top = 1,
                                                     .pad_bottom = 1,
                                                     .pad_left = 1,
                                                     .pad_right = 1},
                                         PoolingSpec{.input = {2, 9, 8, 5},
                                                     .kind = PoolingKind::average,
                                                     .window_h = 3,
                                                     .window_w = 2,
                                                     .pad_top = 1,
                                                     .pad_right = 1}));

TEST(PoolingEdgeTest, AnEmptyBatchDoesNothing) {
  Engine engine;
  Pooling layer(engine, {.input = {0, 4, 4, 3}});
  Tensor x(layer.spec().input);
  Tensor y(layer.spec().output());
  layer.forward(x.view(), y.view());
  layer.backward(y.view(), x.view());
  EXPECT_EQ(layer.implementation(), "none (no images)");
}

TEST(PoolingEdgeTest, RefusesImpossibleSpecs) {
  Engine engine;
  EXPECT_THROW(Pooling(engine, {.input = {1, 4, 4, 0}}), std::invalid_argument);
  EXPECT_THROW(Pooling(engine, {.input = {1, 4, 4, 3}, .window_h = 5}), std::invalid_argument);
  EXPECT_THROW(Pooling(engine, {.input = {1, 4, 4, 3}, .pad_top = 2}), std::invalid_argument);
  EXPECT_THROW(Pooling(engine, {.input = {1, 4, 4, 3}, .stride = 0}), std::invalid_argument);
}

TEST(PoolingKernelsTest, HasNoInputGradientUnlessWanted) {
  Engine engine;
  Pooling layer(engine, {.input = {2, 6, 6, 4}, .input_gradient = InputGradient::unused});
  const Tensor x = shuffled({2, 6, 6, 4});
  Tensor dx({2, 6, 6, 4});
  Tensor y({2, 3, 3, 4});

  layer.forward(x.view(), y.view());

  EXPECT_LT(relative_distance(y.span(), reference::pooling(layer.spec(), x).span()), rounding);
  EXPECT_THROW(layer.backward(y.view(), dx.view()), std::invalid_argument);
  EXPECT_THAT(layer.implementation(), Not(HasSubstr("data")));
}

}  // namespace
}  // namespace rondo::tensor::pooling_test
