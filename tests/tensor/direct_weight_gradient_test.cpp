// Weight gradients by our own loops against plain loops. They are exact, because all values are
// small whole numbers, in fp32 as in bf16.

#include <cstdint>
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

namespace rondo::tensor::direct_weight_gradient_test {
namespace {

using test::normal_tensor;
using test::square;
using test::whole_tensor;
using testing::HasSubstr;
using testing::Not;

// The CPU and the type leave some of these to oneDNN; the results must be the same.
class DirectWeightGradientTest : public testing::TestWithParam<ConvolutionSpec> {
 protected:
  DirectWeightGradientTest() { spec.input_gradient = InputGradient::unused; }

  std::vector<float> gradient(int threads, const Tensor& x, const Tensor& dy) const {
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

  ConvolutionSpec spec = GetParam();
};

TEST_P(DirectWeightGradientTest, EqualsPlainLoopsExactly) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    if (type == DataType::bf16 && !computes_bf16()) continue;
    spec.type = type;
    const Tensor x = whole_tensor(spec.input, 1);
    const Tensor dy = whole_tensor(spec.output(), 2);
    EXPECT_EQ(gradient(1, x, dy), reference::convolution_backward_weights(spec, x, dy))
        << name_of(type);
  }
}

TEST_P(DirectWeightGradientTest, HasTheSameBitsWithAnyNumberOfThreads) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    if (type == DataType::bf16 && !computes_bf16()) continue;
    spec.type = type;
    Engine engine;
    const std::string kernels = Convolution(engine, spec).implementation();
    if (kernels.find("weights rondo") == std::string::npos) continue;  // oneDNN's differ
    const Tensor x = normal_tensor(spec.input, 3);
    const Tensor dy = normal_tensor(spec.output(), 4);
    EXPECT_EQ(gradient(1, x, dy), gradient(3, x, dy)) << name_of(type);
  }
}

INSTANTIATE_TEST_SUITE_P(ResNet20, DirectWeightGradientTest,
                         testing::Values(square(3, 32, 16, 16, 3, 1, 1),
                                         square(3, 32, 16, 32, 3, 2, 1),
                                         square(3, 16, 32, 32, 3, 1, 1),
                                         square(3, 16, 32, 64, 3, 2, 1),
                                         square(20, 8, 64, 64, 3, 1, 1)));

// Odd extents, paddings that differ from side to side, and filters of other heights.
INSTANTIATE_TEST_SUITE_P(
    Edges, DirectWeightGradientTest,
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
INSTANTIATE_TEST_SUITE_P(LargeImages, DirectWeightGradientTest,
                         testing::Values(square(2, 40, 64, 64, 3, 1, 1),
                                         square(1, 57, 64, 80, 3, 2, 1)));

TEST(DirectWeightGradientChoiceTest, LeavesTheOthersToOnednn) {
  Engine engine;
  ConvolutionSpec with_bias = square(2, 16, 64, 64, 3, 1, 1);
  with_bias.bias = true;
  ConvolutionSpec in_groups = square(2, 16, 64, 64, 3, 1, 1);
  in_groups.groups = 4;
  for (const ConvolutionSpec& spec :
       {with_bias, in_groups, square(2, 16, 64, 64, 1, 2, 0), square(2, 16, 64, 64, 5, 1, 2),
        square(2, 16, 3, 64, 3, 2, 1), square(2, 16, 64, 8, 3, 2, 1),
        square(2, 8, 256, 256, 3, 1, 1)}) {
    EXPECT_THAT(Convolution(engine, spec).implementation(), Not(HasSubstr("weights rondo")));
  }
}

// On CPUs with AVX-512 our loops are chosen, so that the tests above test them.
TEST(DirectWeightGradientChoiceTest, TakesStridesAndManyChannels) {
  Engine engine;
  if (!instruction_set().starts_with("avx512")) GTEST_SKIP() << "needs AVX-512";
  for (const ConvolutionSpec& spec :
       {square(2, 32, 16, 32, 3, 2, 1), square(2, 8, 64, 64, 3, 1, 1)}) {
    EXPECT_THAT(Convolution(engine, spec).implementation(), HasSubstr("weights rondo:avx512"));
  }
}

}  // namespace
}  // namespace rondo::tensor::direct_weight_gradient_test
