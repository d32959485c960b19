// Convolution against plain loops: exact, because all values are small whole numbers.

#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference.hpp"

namespace rondo::tensor::convolution_test {
namespace {

using test::square;
using test::whole_tensor;
using test::whole_values;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

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

// oneDNN 3.7 cannot describe these.
INSTANTIATE_TEST_SUITE_P(Pixels, ConvolutionTest,
                         testing::Values(square(2, 7, 256, 1024, 1, 1, 0),
                                         square(2, 7, 1024, 256, 1, 1, 0),
                                         square(2, 7, 512, 1024, 1, 2, 0),
                                         square(1, 4, 2048, 512, 1, 1, 0)));

INSTANTIATE_TEST_SUITE_P(
    OddExtents, ConvolutionTest,
    testing::Values(ConvolutionSpec{.input = {2, 9, 7, 5}, .filters = 7, .bias = true},
                    ConvolutionSpec{.input = {2, 8, 11, 3},
                                    .filters = 10,
                                    .kernel_h = 3,
                                    .kernel_w = 5,
                                    .pad_top = 2,
                                    .pad_left = 1,
                                    .bias = true,
                                    .activation = Activation::relu},
                    ConvolutionSpec{.input = {2, 9, 7, 16},
                                    .filters = 20,
                                    .kernel_h = 3,
                                    .kernel_w = 5,
                                    .pad_top = 2,
                                    .pad_bottom = 0,
                                    .pad_left = 1,
                                    .pad_right = 3},
                    ConvolutionSpec{.input = {2, 10, 10, 17},
                                    .filters = 20,
                                    .kernel_h = 3,
                                    .kernel_w = 3,
                                    .stride = 2,
                                    .pad_bottom = 1,
                                    .pad_right = 1,
                                    .input_gradient = InputGradient::unused},
                    ConvolutionSpec{.input = {2, 6, 6, 8}, .filters = 12, .stride = 2}));

class ConvolutionBatchTest : public testing::Test {
 protected:
  ConvolutionSpec spec = square(3, 8, 6, 16, 3, 1, 1);
  Engine engine;
};

TEST_F(ConvolutionBatchTest, AnotherBatchSizeSharesTheWeights) {
  Convolution full(engine, square(64, 8, 6, 16, 3, 1, 1));
  Case data(spec);
  Convolution last(full, 3);
  full.pack_weights(data.weights);
  data.expect_exact(last, data.x.view(), data.dy.view());
}

TEST_F(ConvolutionBatchTest, ImagesOfAnotherSizeShareTheWeights) {
  ConvolutionSpec other = square(3, 5, 6, 16, 3, 2, 0);
  other.pad_top = 1;
  Convolution first(engine, spec);
  Case data(other);
  Convolution second(first, other);
  first.pack_weights(data.weights);
  data.expect_exact(second, data.x.view(), data.dy.view());
}

TEST_F(ConvolutionBatchTest, RefusesToComputeWithWeightsThatAreNotPacked) {
  Case data(spec);
  Convolution layer(engine, spec);
  EXPECT_THROW(layer.forward(data.x.view(), {}, data.dy.view()), std::logic_error);
  EXPECT_THROW(layer.backward_data(data.dy.view(), data.x.view()), std::logic_error);
}

// It computed with zeros if its kernels prefer a layout that the first layer's do not.
TEST_F(ConvolutionBatchTest, ALayerMadeAfterPackingIsExactOrAsksForIt) {
  Case data(spec);
  ConvolutionSpec forward_only = spec;
  forward_only.input_gradient = InputGradient::unused;
  Convolution first(engine, forward_only);
  first.pack_weights(data.weights);
  Convolution second(first, spec);
  try {
    data.expect_exact(second, data.x.view(), data.dy.view());
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("call pack_weights() first"));
  }
  second.pack_weights(data.weights);
  data.expect_exact(second, data.x.view(), data.dy.view());
}

TEST_F(ConvolutionBatchTest, OtherWeightsAreNotShared) {
  Convolution layer(engine, spec);
  EXPECT_THROW(Convolution(layer, square(3, 8, 6, 16, 5, 1, 1)), std::invalid_argument);
  EXPECT_THROW(Convolution(layer, square(3, 8, 7, 16, 3, 1, 1)), std::invalid_argument);
  EXPECT_THROW(Convolution(layer, square(3, 8, 6, 17, 3, 1, 1)), std::invalid_argument);
}

TEST_F(ConvolutionBatchTest, SeveralThreadsComputeTheSame) {
  Engine two(2);
  Case data(spec);
  Convolution layer(two, spec);
  layer.pack_weights(data.weights);
  data.expect_exact(layer, data.x.view(), data.dy.view());
}

TEST_F(ConvolutionBatchTest, LayersOfOneEngineMayRunInAnyOrder) {
  Case small(spec);
  Case large(square(2, 16, 32, 64, 3, 2, 1));
  Convolution first(engine, small.spec);
  Convolution second(engine, large.spec);  // grows the scratchpad that the first one uses, too
  second.pack_weights(large.weights);
  first.pack_weights(small.weights);
  small.expect_exact(first, small.x.view(), small.dy.view());
  large.expect_exact(second, large.x.view(), large.dy.view());
  small.expect_exact(first, small.x.view(), small.dy.view());
}

TEST_F(ConvolutionBatchTest, AnEmptyBatchLeavesZeroGradients) {
  spec.bias = true;
  Convolution full(engine, spec);
  Convolution layer(full, 0);
  Case data(layer.spec());
  layer.pack_weights(data.weights);
  data.expect_exact(layer, data.x.view(), data.dy.view());
}

TEST_F(ConvolutionBatchTest, RunsOnAnotherThreadThanItsMakers) {
  Case data(spec);
  Convolution layer(engine, spec);
  layer.pack_weights(data.weights);
  std::thread([&] { data.expect_exact(layer, data.x.view(), data.dy.view()); }).join();
}

// oneDNN's kernel for this is broken on AVX2.
TEST_F(ConvolutionBatchTest, APointwiseStrideWithFewChannelsIsExact) {
  for (const std::int64_t channels : {1, 3, 4, 7}) {
    Case data(square(2, 6, channels, 8, 1, 2, 0));
    Convolution layer(engine, data.spec);
    layer.pack_weights(data.weights);
    data.expect_exact(layer, data.x.view(), data.dy.view());
  }
}

// oneDNN's kernel for AVX-512 is broken for some of these. Ranks at the right border of images that
// are split by columns have such padding; and backward mirrors that on the left.
TEST_F(ConvolutionBatchTest, MorePaddingOnOneSideThanOnTheOtherIsExact) {
  struct Sides {
    std::int64_t kernel, left, right, width;
  };
  for (const Sides& sides : {Sides{5, 0, 4, 7},
                             {5, 4, 0, 7},
                             {7, 0, 4, 9},
                             {7, 1, 5, 9},
                             {7, 2, 4, 7},
                             {5, 4, 0, 11},
                             {5, 1, 3, 7}}) {
    for (const std::int64_t channels : {16, 64}) {
      ConvolutionSpec one_sided = square(2, 7, channels, 80 - channels, sides.kernel, 1, 2);
      one_sided.pad_left = sides.left;
      one_sided.pad_right = sides.right;
      one_sided.input.w = sides.width;
      Case data(one_sided);
      Convolution layer(engine, data.spec);
      layer.pack_weights(data.weights);
      data.expect_exact(layer, data.x.view(), data.dy.view());
    }
  }
}

TEST_F(ConvolutionBatchTest, TheSameWithABiasIsExactOrRefused) {
  ConvolutionSpec with_bias = square(2, 6, 4, 8, 1, 2, 0);
  with_bias.bias = true;
  Case data(with_bias);
  try {
    Convolution layer(engine, data.spec);
    layer.pack_weights(data.weights);
    data.expect_exact(layer, data.x.view(), data.dy.view());
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("use 8 channels"));
  }
}

TEST_F(ConvolutionBatchTest, RefusesImpossibleSpecs) {
  EXPECT_THROW(Convolution(engine, square(1, 2, 3, 4, 3, 1, 0)), std::invalid_argument);
  EXPECT_THROW(Convolution(engine, square(1, 8, 3, 0, 3, 1, 0)), std::invalid_argument);
  EXPECT_THROW(Convolution(engine, square(1, 8, 3, 4, 3, 0, 0)), std::invalid_argument);
  EXPECT_THROW(Convolution(engine, square(-1, 8, 3, 4, 3, 1, 0)), std::invalid_argument);
}

TEST_F(ConvolutionBatchTest, RefusesArgumentsThatDoNotFit) {
  Case data(spec);
  Convolution layer(engine, spec);
  Tensor wrong({3, 8, 8, 7});
  EXPECT_THROW(layer.forward(wrong.view(), {}, data.dy.view()), std::invalid_argument);
  EXPECT_THROW(layer.forward(data.x.view(), data.weights, data.dy.view()), std::invalid_argument);
  EXPECT_THROW(layer.pack_weights(data.x.span()), std::invalid_argument);
  EXPECT_THROW(layer.unpack_gradients(wrong.span()), std::invalid_argument);
  EXPECT_THROW(layer.forward(View<const float>(nullptr, spec.input), {}, data.dy.view()),
               std::invalid_argument);
}

TEST_F(ConvolutionBatchTest, HasNoInputGradientUnlessWanted) {
  spec.input_gradient = InputGradient::unused;
  Convolution layer(engine, spec);
  Case data(spec);
  EXPECT_THROW(layer.backward_data(data.dy.view(), data.x.view()), std::invalid_argument);
  EXPECT_THAT(layer.implementation(), Not(HasSubstr("data")));
}

TEST_F(ConvolutionBatchTest, HasNoGradientOfWeightsUnlessWanted) {
  spec.weight_gradient = WeightGradient::unused;
  Convolution layer(engine, spec);
  Case data(spec);
  EXPECT_THROW(layer.backward_weights(data.x.view(), data.dy.view(), {}), std::invalid_argument);
  EXPECT_THROW(layer.unpack_gradients(data.weights), std::invalid_argument);
  EXPECT_THAT(layer.implementation(), Not(HasSubstr("weights")));
}

}  // namespace
}  // namespace rondo::tensor::convolution_test
