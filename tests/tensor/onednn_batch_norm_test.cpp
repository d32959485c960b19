// oneDNN's batch norm and ours are the same function, so their times may be compared.

#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/onednn_batch_norm.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "nearness.hpp"

namespace rondo::tensor::onednn_batch_norm_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;

constexpr double rounding = 1e-5;  // relative; oneDNN sums in fp32

class OnednnBatchNormTest : public testing::TestWithParam<Activation> {};

TEST_P(OnednnBatchNormTest, AgreesWithOurs) {
  const BatchNormSpec spec{.input = {4, 6, 6, 16}, .activation = GetParam()};
  Engine engine;
  BatchNorm ours(engine, spec);
  OnednnBatchNorm theirs(engine, spec);
  const Tensor x = normal_tensor(spec.input, 1, 0.5F, 2.0F);
  const Tensor dy = normal_tensor(spec.input, 2);
  Tensor our_dy = normal_tensor(spec.input, 2);
  const std::vector<float> scale = normal_values(16, 3, 1.0F, 0.3F);
  const std::vector<float> shift = normal_values(16, 4);
  std::vector<float> running(16);
  std::vector<float> gradients(4 * 16UL);
  const std::span<float> all(gradients);
  Tensor y(spec.input);
  Tensor our_y(spec.input);
  Tensor dx(spec.input);

  theirs.forward(x.view(), {scale, shift}, y.view());
  theirs.backward(x.view(), {scale, shift}, dy.view(), dx.view(), all.first(16),
                  all.subspan(16, 16));
  ours.forward_training(x.view(), {}, {scale, shift}, running, running, our_y.view());
  ours.backward(x.view(), our_y.view(), {scale, shift}, our_dy.view(), our_dy.view(),
                all.subspan(32, 16), all.last(16));

  EXPECT_LT(relative_distance(y.span(), our_y.span()), rounding);
  EXPECT_LT(relative_distance(dx.span(), our_dy.span()), rounding);
  EXPECT_LT(relative_distance(all.first(32), all.last(32)), rounding);
}

INSTANTIATE_TEST_SUITE_P(Activations, OnednnBatchNormTest,
                         testing::Values(Activation::none, Activation::relu));

TEST(OnednnBatchNormLimitsTest, RefusesAResidual) {
  Engine engine;

  EXPECT_THROW(OnednnBatchNorm(engine, {.input = {1, 2, 2, 16}, .residual = true}),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tensor::onednn_batch_norm_test
