// Convolutions by Winograd's algorithm: against plain loops in double, within a bound of their
// rounding error; and bit for bit the same for any number of threads and images.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>

#include "data.hpp"
#include "reference.hpp"

namespace rondo::tensor::winograd_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;
using test::square;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// Direct kernels have about 5e-7. The transforms multiply the rounding error by up to ten.
constexpr double bound = 5e-6;

// Everything that a layer computes.
struct Results {
  Tensor y, dx;
  std::vector<float> dw, bias_gradient;
};

struct Case {
  explicit Case(const ConvolutionSpec& given)
      : spec(given),
        x(normal_tensor(spec.input, 1)),
        dy(normal_tensor(spec.output(), 2)),
        weights(normal_values(spec.weights(), 3)),
        bias_memory(normal_values(spec.filters, 4)),
        bias(bias_memory.data(), spec.bias ? bias_memory.size() : 0) {}

  [[nodiscard]] Results run(Convolution& layer) const {
    Results results{.y = Tensor(spec.output()),
                    .dx = Tensor(spec.input),
                    .dw = std::vector<float>(weights.size()),
                    .bias_gradient = std::vector<float>(bias_memory.size())};
    layer.pack_weights(weights);
    layer.forward(x.view(), bias, results.y.view());
    layer.backward_data(dy.view(), results.dx.view());
    layer.backward_weights(x.view(), dy.view(),
                           std::span(results.bias_gradient).first(bias.size()));
    layer.unpack_gradients(results.dw);
    return results;
  }

  [[nodiscard]] Results run(int threads = 1) const {
    Engine engine(threads, std::pmr::get_default_resource(), ConvolutionAlgorithm::fast);
    Convolution layer(engine, spec);
    return run(layer);
  }

  ConvolutionSpec spec;
  Tensor x, dy;
  std::vector<float> weights, bias_memory;
  std::span<const float> bias;  ///< points to memory also where it is empty
};

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.span().begin(), tensor.span().end()};
}

bool can_run() {
  Engine engine(1, std::pmr::get_default_resource(), ConvolutionAlgorithm::fast);
  const Convolution layer(engine, square(1, 8, 16, 16, 3, 1, 1));
  return layer.implementation().find("winograd") != std::string::npos;
}

class WinogradTest : public testing::TestWithParam<ConvolutionSpec> {
 protected:
  void SetUp() override {
    if (!can_run()) GTEST_SKIP() << "this CPU fuses no multiplication with an addition";
  }
};

TEST_P(WinogradTest, IsCloseToPlainLoops) {
  const Case data(GetParam());
  const Results results = data.run();
  EXPECT_LT(relative_distance(results.y.span(),
                              reference::convolution(data.spec, data.x, data.weights,
                                                     {data.bias.begin(), data.bias.end()})
                                  .span()),
            bound);
  EXPECT_LT(relative_distance(
                results.dx.span(),
                reference::convolution_backward_data(data.spec, data.dy, data.weights).span()),
            bound);
  EXPECT_LT(relative_distance(results.dw,
                              reference::convolution_backward_weights(data.spec, data.x, data.dy)),
            bound);
  if (data.spec.bias) {
    EXPECT_LT(relative_distance(results.bias_gradient, reference::bias_gradient(data.dy)), bound);
  } else {
    EXPECT_THAT(results.bias_gradient, Each(0.0F));
  }
}

TEST_P(WinogradTest, HasTheSameBitsOnAnyNumberOfThreads) {
  const Case data(GetParam());
  const Results one = data.run(1);
  for (const int threads : {2, 3, 5}) {
    const Results several = data.run(threads);
    EXPECT_EQ(values_of(several.y), values_of(one.y)) << threads;
    EXPECT_EQ(values_of(several.dx), values_of(one.dx)) << threads;
    EXPECT_EQ(several.dw, one.dw) << threads;
    EXPECT_EQ(several.bias_gradient, one.bias_gradient) << threads;
  }
}

// A layer for one image, made from the layer for all, reads the same packed filters.
TEST_P(WinogradTest, AnImageHasTheSameBitsInAnyBatch) {
  const Case data(GetParam());
  const Results whole = data.run();
  Engine engine(1, std::pmr::get_default_resource(), ConvolutionAlgorithm::fast);
  Convolution layer(engine, data.spec);
  Convolution single(layer, 1);
  layer.pack_weights(data.weights);

  const ConvolutionSpec& spec = single.spec();
  const auto image = spec.input.n * spec.input.h * spec.input.w * spec.input.c;
  const auto last = (data.spec.input.n - 1) * image;
  Tensor y(spec.output());
  const View<const float> image_view{data.x.span().data() + last, spec.input};
  single.forward(image_view, data.bias, y.view());
  const std::vector<float> expected = values_of(whole.y);
  EXPECT_EQ(values_of(y),
            std::vector<float>(expected.end() - spec.output().size(), expected.end()));
}

ConvolutionSpec with_bias(ConvolutionSpec spec) {
  spec.bias = true;
  return spec;
}

// Rows and columns that no tile divides, and a different padding on each side, as parts of images
// have it on a grid.
ConvolutionSpec uneven() {
  return {.input = {3, 11, 6, 16},
          .filters = 48,
          .kernel_h = 3,
          .kernel_w = 3,
          .pad_top = 0,
          .pad_bottom = 1,
          .pad_left = 2,
          .pad_right = 0};
}

// The one before the last has more filters than are transformed at once.
INSTANTIATE_TEST_SUITE_P(
    Layers, WinogradTest,
    testing::Values(square(2, 32, 16, 16, 3, 1, 1), square(5, 16, 32, 32, 3, 1, 1),
                    square(9, 8, 64, 64, 3, 1, 1), square(2, 7, 128, 64, 3, 1, 1),
                    square(2, 14, 64, 256, 3, 1, 1), square(1, 13, 256, 96, 3, 1, 1),
                    square(3, 9, 16, 80, 3, 1, 0), with_bias(square(2, 10, 32, 64, 3, 1, 1)),
                    with_bias(square(2, 6, 256, 160, 3, 1, 1)), uneven()));

TEST(WinogradChoiceTest, IsMadeByTheEngineAndTheShape) {
  if (!can_run()) GTEST_SKIP() << "this CPU fuses no multiplication with an addition";
  Engine direct;
  Engine fast(1, std::pmr::get_default_resource(), ConvolutionAlgorithm::fast);
  const ConvolutionSpec spec = square(4, 16, 32, 32, 3, 1, 1);
  EXPECT_THAT(Convolution(fast, spec).implementation(), HasSubstr("winograd"));
  EXPECT_THAT(Convolution(direct, spec).implementation(), Not(HasSubstr("winograd")));
  for (const ConvolutionSpec& other :
       {square(4, 16, 32, 32, 3, 2, 1), square(4, 16, 32, 32, 1, 1, 0),
        square(4, 16, 32, 32, 5, 1, 2), square(4, 16, 3, 32, 3, 1, 1),
        square(4, 2, 32, 32, 3, 1, 1)}) {
    EXPECT_THAT(Convolution(fast, other).implementation(), Not(HasSubstr("winograd")));
  }
}

TEST(WinogradActivationTest, RectifiesWithTheBias) {
  ConvolutionSpec spec = with_bias(square(2, 10, 32, 64, 3, 1, 1));
  const Case linear(spec);
  spec.activation = Activation::relu;
  const Case rectified(spec);
  std::vector<float> expected = values_of(linear.run().y);
  for (float& value : expected) value = value > 0.0F ? value : 0.0F;
  EXPECT_EQ(values_of(rectified.run().y), expected);
}

}  // namespace
}  // namespace rondo::tensor::winograd_test
