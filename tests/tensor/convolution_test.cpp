// Convolution against plain loops: exact, because all values are small whole numbers.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference/convolution.hpp"

namespace rondo::tensor {
namespace {

using test::Strided;
using test::whole_tensor;
using test::whole_values;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

ConvolutionSpec square(std::int64_t n, std::int64_t side, std::int64_t channels,
                       std::int64_t filters, std::int64_t kernel, std::int64_t stride,
                       std::int64_t padding) {
  return {.input = {n, side, side, channels},
          .filters = filters,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride = stride,
          .pad_top = padding,
          .pad_bottom = padding,
          .pad_left = padding,
          .pad_right = padding};
}

// Whole numbers, their layer, and everything that it computes from them.
struct Case {
  explicit Case(const ConvolutionSpec& given)
      : spec(given),
        x(whole_tensor(spec.input, 1)),
        dy(whole_tensor(spec.output(), 2)),
        weights(whole_values(spec.weights(), 3)),
        bias(whole_values(spec.bias ? spec.filters : 0, 4)) {}

  void expect_exact(Convolution& layer, View<const float> from, View<const float> gradient) {
    Tensor y(spec.output());
    layer.forward(from, bias, y.view());
    EXPECT_THAT(y.span(), ElementsAreArray(reference::convolution(spec, x, weights, bias).span()));

    if (spec.input_gradient == InputGradient::wanted) {
      Tensor dx(spec.input);
      layer.backward_data(gradient, dx.view());
      EXPECT_THAT(dx.span(),
                  ElementsAreArray(reference::convolution_backward_data(spec, dy, weights).span()));
    }
    std::vector<float> bias_gradient(bias.size(), -1.0F);
    std::vector<float> dw(weights.size(), -1.0F);
    layer.backward_weights(from, gradient, bias_gradient);
    layer.unpack_gradients(dw);
    EXPECT_EQ(dw, reference::convolution_backward_weights(spec, x, dy));
    if (spec.bias) {
      EXPECT_EQ(bias_gradient, reference::bias_gradient(dy));
    }
  }

  ConvolutionSpec spec;
  Tensor x;
  Tensor dy;
  std::vector<float> weights;
  std::vector<float> bias;
};

class ConvolutionTest : public testing::TestWithParam<ConvolutionSpec> {};

TEST_P(ConvolutionTest, EqualsPlainLoopsExactly) {
  Engine engine;
  Case data(GetParam());
  Convolution layer(engine, data.spec);
  layer.pack_weights(data.weights);
  data.expect_exact(layer, data.x.view(), data.dy.view());
}

TEST_P(ConvolutionTest, UsesNoReferenceKernel) {
  Engine engine;
  for (const std::int64_t images : {1, 3, 64, 128}) {
    ConvolutionSpec spec = GetParam();
    spec.input.n = images;
    EXPECT_THAT(Convolution(engine, spec).implementation(), Not(HasSubstr("ref")));
  }
}

INSTANTIATE_TEST_SUITE_P(LeNet5, ConvolutionTest,
                         testing::Values(square(3, 28, 1, 6, 5, 1, 2),
                                         square(3, 14, 6, 16, 5, 1, 0)));

INSTANTIATE_TEST_SUITE_P(
    ResNet20, ConvolutionTest,
    testing::Values(square(2, 32, 3, 16, 3, 1, 1), square(2, 32, 16, 16, 3, 1, 1),
                    square(2, 32, 16, 32, 3, 2, 1), square(2, 32, 16, 32, 1, 2, 0),
                    square(2, 16, 32, 32, 3, 1, 1), square(2, 16, 32, 64, 3, 2, 1),
                    square(2, 16, 32, 64, 1, 2, 0), square(2, 8, 64, 64, 3, 1, 1)));

}  // namespace
}  // namespace rondo::tensor
