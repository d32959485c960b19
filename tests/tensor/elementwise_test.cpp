// Loops over activations against their one-line definitions.

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"

namespace rondo::tensor::elementwise_test {
namespace {

using test::whole_tensor;
using test::whole_values;
using testing::ElementsAreArray;

class ElementwiseTest : public testing::TestWithParam<std::tuple<Shape, int>> {
 protected:
  Shape shape = std::get<0>(GetParam());
  Engine engine{std::get<1>(GetParam())};
  Tensor a = whole_tensor(shape, 1);
  Tensor b = whole_tensor(shape, 2);
};

TEST_P(ElementwiseTest, BackwardReluKeepsGradientsWhereTheOutputIsPositive) {
  Tensor expected(shape);
  for (std::size_t i = 0; i < a.span().size(); ++i) {
    expected.span()[i] = a.span()[i] > 0.0F ? b.span()[i] : 0.0F;
  }
  backward_relu(engine, a.view(), b.view());
  EXPECT_THAT(b.span(), ElementsAreArray(expected.span()));
}

TEST_P(ElementwiseTest, AddAdds) {
  Tensor expected(shape);
  for (std::size_t i = 0; i < a.span().size(); ++i) {
    expected.span()[i] = a.span()[i] + b.span()[i];
  }
  add(engine, a.view(), b.view());
  EXPECT_THAT(b.span(), ElementsAreArray(expected.span()));
}

TEST_P(ElementwiseTest, AddBiasAddsToEveryPixelAndMayRectify) {
  const std::vector<float> bias = whole_values(shape.c, 3);
  for (const Activation activation : {Activation::none, Activation::relu}) {
    for (const bool biased : {true, false}) {
      Tensor expected = whole_tensor(shape, 1);
      for (std::size_t i = 0; i < expected.span().size(); ++i) {
        float& value = expected.span()[i];
        if (biased) value += bias[i % bias.size()];
        if (activation == Activation::relu && value < 0.0F) value = 0.0F;
      }
      Tensor y = whole_tensor(shape, 1);
      add_bias(engine, biased ? std::span<const float>(bias) : std::span<const float>(), activation,
               y.view());
      EXPECT_THAT(y.span(), ElementsAreArray(expected.span()));
    }
  }
}

TEST_P(ElementwiseTest, SumPixelsSumsEveryChannel) {
  std::vector<float> expected(static_cast<std::size_t>(shape.c), 0.0F);
  for (std::size_t i = 0; i < a.span().size(); ++i) expected[i % expected.size()] += a.span()[i];
  std::vector<float> sums(expected.size(), -1.0F);
  sum_pixels(engine, a.view(), sums);
  EXPECT_THAT(sums, ElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Shapes, ElementwiseTest,
                         testing::Combine(testing::Values(Shape{3, 5, 7, 3}, Shape{2, 1, 1, 10},
                                                          Shape{1, 9, 1, 17}, Shape{2, 3, 3, 40},
                                                          Shape{0, 4, 4, 4}),
                                          testing::Values(1, 2, 5)));

TEST(ElementwiseEdgeTest, ANotANumberIsNotHidden) {
  Engine engine;
  Tensor y({1, 1, 1, 20});
  Tensor dy({1, 1, 1, 20});
  for (float& value : y.span()) value = std::numeric_limits<float>::quiet_NaN();
  for (float& value : dy.span()) value = 2.0F;
  backward_relu(engine, y.view(), dy.view());
  EXPECT_THAT(dy.span(), testing::Each(2.0F));
}

TEST(ElementwiseEdgeTest, RefusesUnequalShapes) {
  Engine engine;
  Tensor a({1, 2, 2, 3});
  Tensor b({1, 2, 3, 2});
  EXPECT_THROW(add(engine, a.view(), b.view()), std::invalid_argument);
  EXPECT_THROW(backward_relu(engine, a.view(), b.view()), std::invalid_argument);
  std::vector<float> two(2);
  EXPECT_THROW(add_bias(engine, two, Activation::none, a.view()), std::invalid_argument);
  EXPECT_THROW(sum_pixels(engine, a.view(), two), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tensor::elementwise_test
