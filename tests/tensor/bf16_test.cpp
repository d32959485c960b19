// Layers in bf16. Where all values are small whole numbers, oneDNN's sums in fp32 are exact, and
// what is left is one rounding of each result. Batch norm and averages are compared with the
// reference by named tolerances. Kernels of oneDNN need a CPU that computes bf16; the others run
// anywhere.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference.hpp"
#include "support/error_text.hpp"

namespace rondo::tensor::bf16_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;
using test::whole_tensor;
using test::whole_values;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr double one_rounding = 1.0 / 256;  // half of the distance of two neighbouring numbers
constexpr double two_roundings = 2 * one_rounding;

AnyTensor in_bf16(Engine& engine, const Tensor& from) {
  AnyTensor into(from.shape(), DataType::bf16);
  convert(engine, from.view(), into.view());
  return into;
}

Tensor in_f32(Engine& engine, const AnyTensor& from) {
  Tensor into(from.shape());
  convert(engine, from.view(), into.view());
  return into;
}

// What is left of a tensor that was kept in bf16.
Tensor rounded(Tensor tensor) {
  for (float& value : tensor.span()) value = to_float(to_bfloat16(value));
  return tensor;
}

TEST(Bfloat16Test, RoundsToTheNearestAndTiesToEven) {
  const auto bits = [](float value) { return to_bfloat16(value).bits; };
  EXPECT_EQ(bits(1.0F), 0x3f80);
  EXPECT_EQ(bits(1.0F + 1.0F / 256), 0x3f80);  // between 0x3f80 and 0x3f81
  EXPECT_EQ(bits(1.0F + 3.0F / 256), 0x3f82);  // between 0x3f81 and 0x3f82
  EXPECT_EQ(bits(1.0F + 1.1F / 256), 0x3f81);
  EXPECT_EQ(bits(-2.5F), 0xc020);
  EXPECT_EQ(bits(3.4e38F), 0x7f80);  // the largest finite one is 3.39e38
  EXPECT_EQ(bits(std::numeric_limits<float>::infinity()), 0x7f80);
}

TEST(Bfloat16Test, KeepsNan) {
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::signaling_NaN()))));
}

TEST(Bfloat16Test, WidensWithoutLoss) {
  constexpr std::uint32_t smallest = 0x80;  // of those that are not denormal
  for (std::uint32_t bits = smallest; bits < 0x7f80; ++bits) {
    const Bfloat16 value{static_cast<std::uint16_t>(bits)};
    ASSERT_EQ(to_bfloat16(to_float(value)), value);
  }
}

TEST(ConversionTest, RoundsAsToBfloat16Does) {
  Engine engine(2);
  const Tensor x = normal_tensor({3, 5, 7, 3}, 1);
  EXPECT_THAT(in_f32(engine, in_bf16(engine, x)).span(),
              ElementsAreArray(rounded(normal_tensor({3, 5, 7, 3}, 1)).span()));
}

TEST(ConversionTest, CopiesWhereTypesAreTheSame) {
  Engine engine;
  const Tensor x = normal_tensor({2, 3, 3, 5}, 2);
  Tensor copy(x.shape());
  convert(engine, x.view(), copy.view());
  EXPECT_THAT(copy.span(), ElementsAreArray(x.span()));
}

TEST(TypedViewTest, RefusesAnotherTypeThanTheLayers) {
  Engine engine;
  const AnyTensor tensor({1, 2, 2, 3}, DataType::bf16);
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { static_cast<void>(tensor.view().as<float>()); }),
              HasSubstr("bf16 where one of f32"));
  BatchNorm norm(engine, {.input = tensor.shape()});
  const std::vector<float> learned(3, 1.0F);
  std::vector<float> running(3, 0.0F);
  Tensor y(tensor.shape());
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] {
                norm.forward_training(tensor.view(), {}, {learned, learned}, running, running,
                                      y.view());
              }),
              HasSubstr("x is bf16, but f32 is expected"));
}

// Our own loops.

class Bf16BatchNormTest : public testing::TestWithParam<BatchNormSpec> {};

TEST_P(Bf16BatchNormTest, IsTheReferenceButForTheRoundingOfResults) {
  Engine engine(2);
  BatchNormSpec spec = GetParam();
  spec.type = DataType::bf16;
  const Tensor x = rounded(normal_tensor(spec.input, 1, 3.0F, 2.0F));
  const Tensor residual = rounded(normal_tensor(spec.residual ? spec.input : Shape{}, 2));
  const Tensor dy = rounded(normal_tensor(spec.input, 3));
  const auto scale = normal_values(spec.input.c, 4, 1.0F, 0.2F);
  const auto shift = normal_values(spec.input.c, 5, 0.0F, 0.2F);
  const BatchNormParameters p{scale, shift};
  std::vector<float> mean(scale.size());
  std::vector<float> variance(scale.size(), 1.0F);
  const AnyTensor x16 = in_bf16(engine, x);
  const AnyTensor residual16 = in_bf16(engine, residual);
  AnyTensor dy16 = in_bf16(engine, dy);
  AnyTensor y16(spec.input, DataType::bf16);
  AnyTensor dx16(spec.input, DataType::bf16);
  BatchNorm norm(engine, spec);

  norm.forward_training(x16.view(), residual16.view(), p, mean, variance, y16.view());
  std::vector<float> scale_gradient(scale.size());
  std::vector<float> shift_gradient(scale.size());
  norm.backward(x16.view(), y16.view(), p, dy16.view(), dx16.view(), scale_gradient,
                shift_gradient);

  const Tensor y = in_f32(engine, y16);
  const Tensor expected = reference::batch_norm(spec, x, residual, p, reference::moments(x));
  EXPECT_LT(relative_distance(y.span(), expected.span()), one_rounding);
  const auto gradients = reference::batch_norm_backward(spec, x, y, p, dy);
  EXPECT_LT(relative_distance(in_f32(engine, dx16).span(), gradients.x.span()), two_roundings);
  constexpr double of_sums = 1e-4;  // nothing in them is rounded to bf16
  EXPECT_LT(relative_distance(scale_gradient, gradients.scale), of_sums);
  EXPECT_LT(relative_distance(shift_gradient, gradients.shift), of_sums);
}

INSTANTIATE_TEST_SUITE_P(Layers, Bf16BatchNormTest,
                         testing::Values(BatchNormSpec{.input = {4, 6, 5, 16}},
                                         BatchNormSpec{.input = {4, 6, 5, 24}, .residual = true},
                                         BatchNormSpec{.input = {3, 3, 3, 7},
                                                       .activation = Activation::none}));

TEST(Bf16ElementwiseTest, AddsAndGatesInFloat) {
  Engine engine;
  const Shape shape{2, 3, 3, 7};
  const Tensor a = whole_tensor(shape, 1);
  const Tensor b = whole_tensor(shape, 2);
  AnyTensor sum = in_bf16(engine, b);
  add(engine, in_bf16(engine, a).view(), sum.view());
  Tensor expected = whole_tensor(shape, 2);
  add(engine, a.view(), expected.view());
  EXPECT_THAT(in_f32(engine, sum).span(), ElementsAreArray(expected.span()));
  backward_relu(engine, in_bf16(engine, a).view(), sum.view());
  backward_relu(engine, a.view(), expected.view());
  EXPECT_THAT(in_f32(engine, sum).span(), ElementsAreArray(expected.span()));
}

// oneDNN's kernels.

class Bf16KernelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!computes_bf16()) GTEST_SKIP() << "this CPU does not compute bf16";
  }

  Engine engine;
};

class Bf16ConvolutionTest : public testing::TestWithParam<ConvolutionSpec> {
 protected:
  void SetUp() override {
    if (!computes_bf16()) GTEST_SKIP() << "this CPU does not compute bf16";
  }
};

// Weights, biases and their gradients stay fp32.
template <typename Kernel>
struct Results {
  template <typename Spec>
  Results(Engine& engine, Spec spec, const Tensor& x, const Tensor& dy,
          const std::vector<float>& weights, const std::vector<float>& bias)
      : y(spec.output(), DataType::bf16),
        dx(spec.input, DataType::bf16),
        bias_gradient(bias.size()),
        dw(weights.size()) {
    spec.type = DataType::bf16;
    Kernel layer(engine, spec);
    const AnyTensor x16 = in_bf16(engine, x);
    const AnyTensor dy16 = in_bf16(engine, dy);
    layer.pack_weights(weights);
    layer.forward(x16.view(), bias, y.view());
    layer.backward_weights(x16.view(), dy16.view(), bias_gradient);
    layer.unpack_gradients(dw);
    layer.backward_data(dy16.view(), dx.view());
  }

  AnyTensor y;
  AnyTensor dx;
  std::vector<float> bias_gradient;
  std::vector<float> dw;
};

TEST_P(Bf16ConvolutionTest, RoundsExactSumsOnce) {
  Engine engine;
  const ConvolutionSpec& spec = GetParam();
  const Tensor x = whole_tensor(spec.input, 1);
  const Tensor dy = whole_tensor(spec.output(), 2);
  const auto weights = whole_values(spec.weights(), 3);
  const auto bias = whole_values(spec.bias ? spec.filters : 0, 4);

  const Results<Convolution> results(engine, spec, x, dy, weights, bias);

  EXPECT_THAT(in_f32(engine, results.y).span(),
              ElementsAreArray(rounded(reference::convolution(spec, x, weights, bias)).span()));
  EXPECT_THAT(
      in_f32(engine, results.dx).span(),
      ElementsAreArray(rounded(reference::convolution_backward_data(spec, dy, weights)).span()));
  EXPECT_EQ(results.dw, reference::convolution_backward_weights(spec, x, dy));
  if (spec.bias) {
    EXPECT_EQ(results.bias_gradient, reference::bias_gradient(dy));
  }
}

ConvolutionSpec square(std::int64_t side, std::int64_t channels, std::int64_t filters,
                       std::int64_t kernel, std::int64_t stride, bool bias = false) {
  const std::int64_t padding = kernel / 2;
  return {.input = {2, side, side, channels},
          .filters = filters,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride = stride,
          .pad_top = padding,
          .pad_bottom = padding,
          .pad_left = padding,
          .pad_right = padding,
          .bias = bias};
}

// As many groups as channels: depthwise.
ConvolutionSpec grouped(std::int64_t side, std::int64_t channels, std::int64_t filters,
                        std::int64_t groups, std::int64_t stride) {
  ConvolutionSpec spec = square(side, channels, filters, 3, stride);
  spec.groups = groups;
  return spec;
}

INSTANTIATE_TEST_SUITE_P(Layers, Bf16ConvolutionTest,
                         testing::Values(square(8, 3, 16, 3, 1), square(8, 16, 16, 3, 1, true),
                                         square(8, 16, 32, 3, 2), square(8, 16, 32, 1, 2),
                                         square(7, 20, 12, 5, 1, true), grouped(8, 32, 64, 4, 1),
                                         grouped(8, 32, 32, 32, 1), grouped(7, 24, 24, 24, 2)));

// oneDNN leaves what the memory held, here the gradient of another layer.
TEST_F(Bf16KernelTest, TheGradientOfWhatReadsPaddingAloneIsZero) {
  const auto gradient = [this](const ConvolutionSpec& spec) {
    const Tensor x = whole_tensor(spec.input, 1);
    const Tensor dy = whole_tensor(spec.output(), 2);
    const auto weights = whole_values(spec.weights(), 3);
    const auto bias = whole_values(spec.bias ? spec.filters : 0, 4);
    const Results<Convolution> results(engine, spec, x, dy, weights, bias);
    EXPECT_EQ(results.dw, reference::convolution_backward_weights(spec, x, dy));
  };
  for (const std::int64_t stride : {2, 3, 4}) {
    for (const std::int64_t side : {1, 2, 3}) {
      gradient(square(8, 160, 32, 3, 1, true));
      gradient(square(side, 160, 32, 3, stride, true));
    }
  }
}

// The first of oneDNN's kernels is broken for these numbers of pixels.
TEST_F(Bf16KernelTest, PointwiseInputGradientsOfAnOddNumberOfFiltersAreExact) {
  for (const std::int64_t filters : {1, 3, 17}) {
    for (const std::int64_t stride : {1, 2}) {
      const ConvolutionSpec spec = square(30 * stride, 16, filters, 1, stride);
      const Tensor x = whole_tensor(spec.input, 1);
      const Tensor dy = whole_tensor(spec.output(), 2);
      const auto weights = whole_values(spec.weights(), 3);
      const Results<Convolution> results(engine, spec, x, dy, weights, {});
      EXPECT_THAT(in_f32(engine, results.dx).span(),
                  ElementsAreArray(
                      rounded(reference::convolution_backward_data(spec, dy, weights)).span()));
    }
  }
}

TEST_F(Bf16KernelTest, FullyConnectedRoundsExactSumsOnce) {
  for (const Shape& input : {Shape{4, 1, 1, 24}, Shape{3, 2, 3, 16}}) {
    const FullyConnectedSpec spec{.input = input, .outputs = 10};
    const Tensor x = whole_tensor(spec.input, 1);
    const Tensor dy = whole_tensor(spec.output(), 2);
    const auto weights = whole_values(spec.weights(), 3);
    const auto bias = whole_values(spec.outputs, 4);

    const Results<FullyConnected> results(engine, spec, x, dy, weights, bias);

    EXPECT_THAT(
        in_f32(engine, results.y).span(),
        ElementsAreArray(rounded(reference::fully_connected(spec, x, weights, bias)).span()));
    EXPECT_THAT(in_f32(engine, results.dx).span(),
                ElementsAreArray(
                    rounded(reference::fully_connected_backward_data(spec, dy, weights)).span()));
    EXPECT_EQ(results.dw, reference::fully_connected_backward_weights(spec, x, dy));
    EXPECT_EQ(results.bias_gradient, reference::bias_gradient(dy));
  }
}

TEST_F(Bf16KernelTest, PoolingIsTheReferenceButForTheRoundingOfResults) {
  for (const PoolingKind kind : {PoolingKind::max, PoolingKind::average}) {
    const PoolingSpec spec{.input = {2, 6, 6, 16},
                           .kind = kind,
                           .window_h = 3,
                           .window_w = 3,
                           .stride = 2,
                           .type = DataType::bf16};
    const Tensor x = rounded(normal_tensor(spec.input, 1));
    const Tensor dy = rounded(normal_tensor(spec.output(), 2));
    AnyTensor y(spec.output(), DataType::bf16);
    AnyTensor dx(spec.input, DataType::bf16);
    Pooling layer(engine, spec);

    layer.forward(in_bf16(engine, x).view(), y.view());
    layer.backward(in_bf16(engine, dy).view(), dx.view());

    EXPECT_LT(relative_distance(in_f32(engine, y).span(), reference::pooling(spec, x).span()),
              one_rounding);
    EXPECT_LT(relative_distance(in_f32(engine, dx).span(),
                                reference::pooling_backward(spec, x, dy).span()),
              two_roundings);
  }
}

TEST_F(Bf16KernelTest, PackedWeightsTakeHalfTheMemory) {
  ConvolutionSpec spec = square(8, 64, 64, 3, 1);
  spec.input_gradient = InputGradient::unused;
  const std::size_t in_f32 = memory_of(engine, spec).own;
  spec.type = DataType::bf16;
  EXPECT_EQ(memory_of(engine, spec).own, in_f32 / 2);
}

TEST(Bf16RefusalTest, SaysWhatIsMissingAndWhatToDo) {
  EXPECT_NO_THROW(require_computable(DataType::f32));
  if (computes_bf16()) GTEST_SKIP() << "this CPU computes bf16";
  Engine engine;
  ConvolutionSpec spec = square(8, 16, 16, 3, 1);
  spec.type = DataType::bf16;
  EXPECT_THAT(rondo::test::error_text<std::runtime_error>([&] { Convolution(engine, spec); }),
              HasSubstr("compute in fp32 here"));
}

}  // namespace
}  // namespace rondo::tensor::bf16_test
