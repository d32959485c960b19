// Weight gradients by our own loops against plain loops. They are exact, because all values are
// small whole numbers, in fp32 as in bf16. Where the CPU has AMX, these tests run a second time
// without it.

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference.hpp"

namespace rondo::tensor::own_weight_gradient_test {
namespace {

using test::normal_tensor;
using test::square;
using test::whole_tensor;
using testing::HasSubstr;
using testing::Not;

std::vector<float> gradient(const ConvolutionSpec& spec, int threads, const Tensor& x,
                            const Tensor& dy) {
  Engine engine(threads);
  AnyTensor x_typed(x.shape(), spec.type);
  AnyTensor dy_typed(dy.shape(), spec.type);
  convert(engine, x.view(), x_typed.view());
  convert(engine, dy.view(), dy_typed.view());
  Convolution layer(engine, spec);
  std::vector<float> dw(static_cast<std::size_t>(spec.weights()), -1.0F);
  layer.backward_weights(x_typed.view(), dy_typed.view(), {});
  layer.unpack_gradients(dw);
  return dw;
}

// Layers for which oneDNN has no fast kernel are refused.
bool is_computed(const ConvolutionSpec& spec) {
  if (spec.type == DataType::bf16 && !computes_bf16()) return false;
  Engine engine;
  try {
    Convolution(engine, spec);
  } catch (const std::runtime_error&) {
    return false;
  }
  return true;
}

// How many types were computed.
int expect_plain_gradients(ConvolutionSpec spec) {
  const Tensor x = whole_tensor(spec.input, 1);
  const Tensor dy = whole_tensor(spec.output(), 2);
  const std::vector<float> plain = reference::convolution_backward_weights(spec, x, dy);
  int types = 0;
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    spec.type = type;
    if (!is_computed(spec)) continue;
    EXPECT_EQ(gradient(spec, 1, x, dy), plain) << name_of(type);
    ++types;
  }
  return types;
}

// The CPU and the type leave some of these to oneDNN; the results must be the same.
class OwnWeightGradientTest : public testing::TestWithParam<ConvolutionSpec> {
 protected:
  OwnWeightGradientTest() { spec.input_gradient = InputGradient::unused; }

  ConvolutionSpec spec = GetParam();
};

TEST_P(OwnWeightGradientTest, EqualsPlainLoopsExactly) {
  EXPECT_EQ(expect_plain_gradients(spec), computes_bf16() ? 2 : 1);
}

TEST_P(OwnWeightGradientTest, HasTheSameBitsWithAnyNumberOfThreads) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    if (type == DataType::bf16 && !computes_bf16()) continue;
    spec.type = type;
    Engine engine;
    const std::string kernels = Convolution(engine, spec).implementation();
    if (kernels.find("weights rondo") == std::string::npos) continue;  // oneDNN's differ
    const Tensor x = normal_tensor(spec.input, 3);
    const Tensor dy = normal_tensor(spec.output(), 4);
    EXPECT_EQ(gradient(spec, 1, x, dy), gradient(spec, 3, x, dy)) << name_of(type);
  }
}

INSTANTIATE_TEST_SUITE_P(ResNet20, OwnWeightGradientTest,
                         testing::Values(square(3, 32, 16, 16, 3, 1, 1),
                                         square(3, 32, 16, 32, 3, 2, 1),
                                         square(3, 16, 32, 32, 3, 1, 1),
                                         square(3, 16, 32, 64, 3, 2, 1),
                                         square(20, 8, 64, 64, 3, 1, 1)));

// Kernels of other extents, numbers of channels and filters that fill no tile, images that are
// smaller than one, and more images than are computed at once.
INSTANTIATE_TEST_SUITE_P(
    OtherLayers, OwnWeightGradientTest,
    testing::Values(square(2, 28, 1, 20, 5, 1, 0), square(3, 12, 20, 50, 5, 1, 2),
                    square(2, 16, 32, 64, 1, 2, 0), square(2, 8, 40, 24, 1, 1, 0),
                    square(1, 30, 3, 64, 7, 2, 3), square(5, 2, 17, 33, 3, 2, 1),
                    square(50, 1, 3, 5, 1, 1, 0), square(3, 12, 20, 36, 2, 2, 0),
                    square(40, 16, 48, 32, 3, 1, 1)));

// Odd extents, paddings that differ from side to side, and filters of other heights.
INSTANTIATE_TEST_SUITE_P(
    Edges, OwnWeightGradientTest,
    testing::Values(
        square(2, 9, 8, 16, 3, 1, 0), square(2, 9, 24, 48, 3, 1, 2), square(2, 11, 8, 32, 3, 3, 1),
        square(2, 3, 64, 64, 3, 1, 1), square(1, 1, 64, 64, 3, 1, 1),
        ConvolutionSpec{
            .input = {2, 7, 5, 64}, .filters = 80, .kernel_h = 1, .kernel_w = 3, .pad_left = 2},
        ConvolutionSpec{.input = {2, 6, 10, 72},
                        .filters = 64,
                        .kernel_h = 5,
                        .kernel_w = 3,
                        .pad_top = 4,
                        .pad_bottom = 1,
                        .pad_right = 2},
        ConvolutionSpec{.input = {2, 10, 9, 40},
                        .filters = 16,
                        .kernel_h = 4,
                        .kernel_w = 3,
                        .stride = 2,
                        .pad_top = 3,
                        .pad_left = 1,
                        .pad_right = 3}));

// An image that does not fit a slab is computed in bands of rows.
INSTANTIATE_TEST_SUITE_P(LargeImages, OwnWeightGradientTest,
                         testing::Values(square(2, 40, 64, 64, 3, 1, 1),
                                         square(1, 57, 64, 80, 3, 2, 1)));

// Layers of all kinds: the numbers are drawn by a generator that is the same everywhere.
TEST(OwnWeightGradientShapesTest, RandomShapesEqualPlainLoopsExactly) {
  std::mt19937 random(7);
  const auto draw = [&](unsigned from, unsigned to) {
    return static_cast<std::int64_t>(from + random() % (to - from + 1));
  };
  int computed = 0;
  for (int i = 0; i < 150; ++i) {
    ConvolutionSpec spec{.input = {draw(1, 6), draw(1, 12), draw(1, 12), draw(1, 40)},
                         .filters = draw(1, 40),
                         .kernel_h = draw(1, 5),
                         .kernel_w = draw(1, 5),
                         .stride = draw(1, 3),
                         .pad_top = draw(0, 4),
                         .pad_bottom = draw(0, 4),
                         .pad_left = draw(0, 4),
                         .pad_right = draw(0, 4),
                         .input_gradient = InputGradient::unused};
    if (spec.input.h + spec.pad_top + spec.pad_bottom < spec.kernel_h) continue;
    if (spec.input.w + spec.pad_left + spec.pad_right < spec.kernel_w) continue;
    computed += expect_plain_gradients(spec);
  }
  EXPECT_GT(computed, computes_bf16() ? 250 : 125);
}

// A forward kernel's name tells which instructions oneDNN may use: brgconv:avx512_core_amx of 2.6,
// brg_conv_fwd:avx10_1_512_amx of 3.7.
class OwnWeightGradientChoiceTest : public testing::Test {
 protected:
  std::string kernels_of(ConvolutionSpec spec, DataType type) {
    spec.type = type;
    return Convolution(engine_, spec).implementation();
  }
  bool has_amx() {
    if (!computes_bf16()) return false;
    const std::string kernels = kernels_of(square(2, 16, 32, 32, 3, 1, 1), DataType::bf16);
    return kernels.substr(0, kernels.find(',')).find("amx") != std::string::npos;
  }

 private:
  Engine engine_;
};

TEST_F(OwnWeightGradientChoiceTest, LeavesTheOthersToOnednn) {
  ConvolutionSpec with_bias = square(2, 16, 64, 64, 3, 1, 1);
  with_bias.bias = true;
  ConvolutionSpec in_groups = square(2, 16, 64, 64, 3, 1, 1);
  in_groups.groups = 4;
  for (const ConvolutionSpec& spec :
       {with_bias, in_groups, square(2, 16, 64, 64, 1, 2, 0), square(2, 16, 64, 64, 5, 1, 2),
        square(2, 16, 3, 64, 3, 2, 1), square(2, 16, 64, 8, 3, 2, 1),
        square(2, 8, 256, 256, 3, 1, 1)}) {
    EXPECT_THAT(kernels_of(spec, DataType::f32), Not(HasSubstr("weights rondo")));
  }
}

// On CPUs with AVX-512 our loops are chosen, so that the tests above test them.
TEST_F(OwnWeightGradientChoiceTest, TakesStridesAndManyChannels) {
  if (!instruction_set().starts_with("avx512")) GTEST_SKIP() << "needs AVX-512";
  for (const ConvolutionSpec& spec :
       {square(2, 32, 16, 32, 3, 2, 1), square(2, 8, 64, 64, 3, 1, 1)}) {
    const std::string kernels = kernels_of(spec, DataType::f32);
    EXPECT_EQ(kernels.find("weights rondo:avx512") != std::string::npos, !has_amx()) << kernels;
  }
}

TEST_F(OwnWeightGradientChoiceTest, TakesAmxInBf16WhereOnednnMayUseIt) {
  if (!computes_bf16()) GTEST_SKIP() << "needs bf16";
  for (const ConvolutionSpec& spec : {square(2, 32, 3, 16, 3, 1, 1), square(2, 32, 16, 32, 1, 2, 0),
                                      square(2, 7, 512, 512, 3, 1, 1)}) {
    const std::string kernels = kernels_of(spec, DataType::bf16);
    EXPECT_EQ(kernels.find("weights rondo:amx_bf16") != std::string::npos, has_amx()) << kernels;
  }
}

TEST_F(OwnWeightGradientChoiceTest, LeavesImagesThatDoNotFitTheCacheToOnednn) {
  if (!computes_bf16()) GTEST_SKIP() << "needs bf16";
  EXPECT_THAT(kernels_of(square(1, 224, 3, 64, 7, 2, 3), DataType::bf16),
              Not(HasSubstr("weights rondo:amx")));
}

}  // namespace
}  // namespace rondo::tensor::own_weight_gradient_test
