// Views as xtensor expressions, and xtensor as a second oracle for our kernels.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>
#include <xtensor/xeval.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/tensor/xview.hpp>

#include "data.hpp"

namespace rondo::tensor::xview_test {
namespace {

using test::normal_tensor;
using test::whole_tensor;

TEST(XviewTest, IndexesAsNhwc) {
  Tensor tensor = whole_tensor({2, 3, 4, 5}, 1);
  const auto x = xview(tensor);
  ASSERT_EQ(x.dimension(), 4U);
  EXPECT_EQ(x(1, 2, 3, 4), tensor.span()[119]);
  EXPECT_EQ(x(0, 1, 0, 2), tensor.span()[22]);
}

TEST(XviewTest, WritesTheMemoryOfTheView) {
  Tensor tensor({1, 2, 2, 3});
  auto x = xview(tensor);
  x(0, 1, 1, 0) = 7.0F;
  EXPECT_EQ(tensor.span()[9], 7.0F);
}

TEST(XviewTest, ExtentsOfOneBroadcast) {
  const Tensor row = whole_tensor({1, 1, 1, 4}, 1);
  const Tensor tensor = whole_tensor({2, 3, 1, 4}, 2);
  const auto sum = xt::eval(xview(tensor) + xview(row));
  EXPECT_EQ(sum(1, 2, 0, 3), tensor.span()[23] + row.span()[3]);
}

TEST(XviewTest, AnEmptyTensorHasNoElements) {
  const Tensor tensor({0, 4, 4, 3});
  EXPECT_EQ(xview(tensor).size(), 0U);
}

TEST(XviewOracleTest, AddIsXtensorsSum) {
  Engine engine;
  const Tensor a = whole_tensor({2, 5, 3, 7}, 1);
  Tensor b = whole_tensor({2, 5, 3, 7}, 2);
  const auto expected = xt::eval(xview(a) + xview(b));
  add(engine, a.view(), b.view());
  EXPECT_TRUE(xt::all(xt::equal(xview(b), expected)));
}

TEST(XviewOracleTest, BatchNormIsXtensorsFormula) {
  Engine engine;
  const BatchNormSpec spec{.input = {4, 6, 5, 16}};
  BatchNorm layer(engine, spec);
  const Tensor x = normal_tensor(spec.input, 1, 2.0F, 3.0F);
  Tensor y(spec.input);
  const std::vector<float> scale(16, 1.5F);
  const std::vector<float> shift(16, 0.25F);
  std::vector<float> running(16);
  layer.forward_training(x.view(), {}, {scale, shift}, running, running, y.view());

  const auto mean = xt::eval(xt::mean(xview(x), {0, 1, 2}));
  const auto deviation =
      xt::eval(xt::sqrt(xt::mean(xt::square(xview(x) - mean), {0, 1, 2}) + spec.epsilon));
  const auto expected = xt::eval(xt::maximum(0.0F, (xview(x) - mean) / deviation * 1.5F + 0.25F));
  constexpr double tolerance = 1e-4;  // xtensor sums in fp32
  EXPECT_TRUE(xt::allclose(xview(y), expected, tolerance, tolerance));
}

}  // namespace
}  // namespace rondo::tensor::xview_test
