// backward_relu and add against their one-line definitions.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"

namespace rondo::tensor {
namespace {

using test::Strided;
using test::whole_tensor;
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
  Strided strided(b, 5);
  backward_relu(engine, a.view(), strided.view());
  backward_relu(engine, a.view(), b.view());
  EXPECT_THAT(b.span(), ElementsAreArray(expected.span()));
  EXPECT_THAT(strided.dense().span(), ElementsAreArray(expected.span()));
}

TEST_P(ElementwiseTest, AddAdds) {
  Tensor expected(shape);
  for (std::size_t i = 0; i < a.span().size(); ++i) {
    expected.span()[i] = a.span()[i] + b.span()[i];
  }
  Strided from(a, 3);
  Strided into(b, 7);
  add(engine, from.view(), into.view());
  add(engine, a.view(), b.view());
  EXPECT_THAT(b.span(), ElementsAreArray(expected.span()));
  EXPECT_THAT(into.dense().span(), ElementsAreArray(expected.span()));
  EXPECT_TRUE(into.gaps_are_untouched());
}

INSTANTIATE_TEST_SUITE_P(Shapes, ElementwiseTest,
                         testing::Combine(testing::Values(Shape{3, 5, 7, 3}, Shape{2, 1, 1, 10},
                                                          Shape{1, 9, 1, 17}, Shape{0, 4, 4, 4}),
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
}

}  // namespace
}  // namespace rondo::tensor
