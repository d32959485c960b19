// Loops over activations and the loss against their definitions, and views as xtensor's
// expressions.

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/tensor/xview.hpp>

#include "data.hpp"
#include "support/xtensor.hpp"

namespace rondo::tensor::elementwise_test {
namespace {

using test::normal_tensor;
using test::whole_tensor;
using test::whole_values;
using testing::ElementsAreArray;

// Loops over activations against their one-line definitions.

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

TEST(ElementwiseEdgeTest, ALimitedReluCutsOnBothSides) {
  Engine engine;
  Tensor x({1, 1, 1, 40});
  Tensor y({1, 1, 1, 40});
  Tensor dy({1, 1, 1, 40});
  for (std::size_t i = 0; i < 40; ++i) x.span()[i] = static_cast<float>(i) / 2.0F - 4.0F;
  std::ranges::fill(dy.span(), 3.0F);
  relu(engine, x.view(), y.view(), 6.0F);
  backward_relu(engine, y.view(), dy.view(), 6.0F);
  for (std::size_t i = 0; i < 40; ++i) {
    const float value = x.span()[i];
    EXPECT_EQ(y.span()[i], std::clamp(value, 0.0F, 6.0F)) << value;
    EXPECT_EQ(dy.span()[i], value > 0.0F && value < 6.0F ? 3.0F : 0.0F) << value;
  }
  relu(engine, x.view(), x.view());
  EXPECT_EQ(x.span()[39], 15.5F);
  EXPECT_EQ(x.span()[0], 0.0F);
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

// Softmax cross-entropy against its definition.

constexpr double rounding = 1e-12;

// -sum over classes of target * log(softmax), as written in a textbook.
double textbook_loss(const Tensor& logits, const std::vector<std::int32_t>& labels, double s) {
  const auto classes = static_cast<std::size_t>(logits.shape().c);
  double loss = 0.0;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const auto z = logits.span().subspan(n * classes, classes);
    double sum = 0.0;
    for (const float value : z) sum += std::exp(static_cast<double>(value));
    for (std::size_t k = 0; k < classes; ++k) {
      const bool is_label = static_cast<std::size_t>(labels[n]) == k;
      const double target = s / static_cast<double>(classes) + (is_label ? 1.0 - s : 0.0);
      loss -= target * std::log(std::exp(static_cast<double>(z[k])) / sum);
    }
  }
  return loss;
}

class CrossEntropyTest : public testing::TestWithParam<float> {
 protected:
  Engine engine;
  std::vector<std::int32_t> labels{2, 0, 6, 3};
  Tensor logits = normal_tensor({4, 1, 1, 7}, 1, 0.0F, 2.0F);
};

TEST_P(CrossEntropyTest, LossIsTheTextbooks) {
  const Loss loss = softmax_cross_entropy(engine, logits.view(), labels, GetParam(), {});
  EXPECT_NEAR(loss.sum, textbook_loss(logits, labels, static_cast<double>(GetParam())), rounding);
}

// As a model has it that leaves classes out.
TEST(CrossEntropyValueTest, AnImpossibleClassIsNoPartOfTheLoss) {
  Engine engine;
  Tensor logits({1, 1, 1, 2});
  logits.span()[0] = 0.0F;
  logits.span()[1] = -std::numeric_limits<float>::infinity();
  const std::vector<std::int32_t> labels{0};
  EXPECT_EQ(softmax_cross_entropy(engine, logits.view(), labels, 0.0F, {}).sum, 0.0);
}

TEST_P(CrossEntropyTest, GradientIsTheSlopeOfTheLoss) {
  Tensor gradient(logits.shape());
  softmax_cross_entropy(engine, logits.view(), labels, GetParam(), gradient.view());
  constexpr float step = 0x1p-8F;
  constexpr double truncation = 1e-5;  // of a central difference with that step
  for (std::size_t i = 0; i < logits.span().size(); ++i) {
    const float value = logits.span()[i];
    logits.span()[i] = value + step;
    const double above = softmax_cross_entropy(engine, logits.view(), labels, GetParam(), {}).sum;
    const double width = static_cast<double>(logits.span()[i]);
    logits.span()[i] = value - step;
    const double below = softmax_cross_entropy(engine, logits.view(), labels, GetParam(), {}).sum;
    const double slope = (above - below) / (width - static_cast<double>(logits.span()[i]));
    logits.span()[i] = value;
    EXPECT_NEAR(gradient.span()[i], slope, truncation);
  }
}

TEST_P(CrossEntropyTest, GradientMayReplaceTheLogits) {
  Tensor gradient(logits.shape());
  softmax_cross_entropy(engine, logits.view(), labels, GetParam(), gradient.view());
  softmax_cross_entropy(engine, logits.view(), labels, GetParam(), logits.view());
  EXPECT_THAT(logits.span(), ElementsAreArray(gradient.span()));
}

// The second image is a mixture of two of its class.
TEST_P(CrossEntropyTest, AMixtureLosesTheSharesOfBothLabels) {
  const std::vector<std::int32_t> others{0, 0, 5, 6};
  const auto smoothing = static_cast<double>(GetParam());
  const Loss loss =
      softmax_cross_entropy(engine, logits.view(), labels, GetParam(), {}, {others, 0.3});
  EXPECT_NEAR(loss.sum,
              0.3 * textbook_loss(logits, labels, smoothing) +
                  0.7 * textbook_loss(logits, others, smoothing),
              rounding);
}

TEST_P(CrossEntropyTest, TheGradientOfAMixtureIsThatOfBothLabels) {
  const std::vector<std::int32_t> others{0, 0, 5, 6};
  Tensor of_labels(logits.shape());
  Tensor of_others(logits.shape());
  Tensor mixed(logits.shape());
  softmax_cross_entropy(engine, logits.view(), labels, GetParam(), of_labels.view());
  softmax_cross_entropy(engine, logits.view(), others, GetParam(), of_others.view());
  softmax_cross_entropy(engine, logits.view(), labels, GetParam(), mixed.view(), {others, 0.3});
  for (std::size_t i = 0; i < logits.span().size(); ++i) {
    const double sum = 0.3 * static_cast<double>(of_labels.span()[i]) +
                       0.7 * static_cast<double>(of_others.span()[i]);
    EXPECT_NEAR(mixed.span()[i], sum, 1e-6);  // of three floats
  }
}

TEST_P(CrossEntropyTest, AMixtureOfTheLabelAloneChangesNoBit) {
  const std::vector<std::int32_t> others{0, 0, 5, 6};
  Tensor usual(logits.shape());
  Tensor mixed(logits.shape());
  const Loss one = softmax_cross_entropy(engine, logits.view(), labels, GetParam(), usual.view());
  const Loss other =
      softmax_cross_entropy(engine, logits.view(), labels, GetParam(), mixed.view(), {others, 1.0});
  EXPECT_EQ(other.sum, one.sum);
  EXPECT_EQ(other.correct, one.correct);
  EXPECT_THAT(mixed.span(), ElementsAreArray(usual.span()));
}

INSTANTIATE_TEST_SUITE_P(Smoothing, CrossEntropyTest, testing::Values(0.0F, 0.1F));

TEST(CrossEntropyEdgeTest, OfAMixtureTheLargerShareCounts) {
  Engine engine;
  Tensor logits({1, 1, 1, 3});
  logits.span()[1] = 1.0F;
  const std::vector<std::int32_t> one{1};
  const std::vector<std::int32_t> two{2};
  const auto correct = [&](const auto& label, const auto& other, double share) {
    return softmax_cross_entropy(engine, logits.view(), label, 0.0F, {}, {other, share}).correct;
  };
  EXPECT_EQ(correct(one, two, 0.6), 1);
  EXPECT_EQ(correct(one, two, 0.4), 0);
  EXPECT_EQ(correct(two, one, 0.4), 1);
}

TEST(CrossEntropyEdgeTest, EqualLogitsLoseTheLogarithmOfTheClasses) {
  Engine engine;
  Tensor logits({3, 1, 1, 10});
  const std::vector<std::int32_t> labels{0, 5, 9};
  const Loss loss = softmax_cross_entropy(engine, logits.view(), labels, 0.0F, {});
  EXPECT_NEAR(loss.sum, 3.0 * std::numbers::ln10, rounding);
}

TEST(CrossEntropyEdgeTest, CountsImagesWhoseLabelIsOnTop) {
  Engine engine;
  Tensor logits({3, 1, 1, 2});
  logits.span()[0] = 1.0F;
  logits.span()[3] = 1.0F;
  logits.span()[4] = 1.0F;
  const std::vector<std::int32_t> labels{0, 1, 1};
  EXPECT_EQ(softmax_cross_entropy(engine, logits.view(), labels, 0.0F, {}).correct, 2);
}

TEST(CrossEntropyEdgeTest, HugeLogitsDoNotOverflow) {
  Engine engine;
  Tensor logits({1, 1, 1, 2});
  logits.span()[0] = 1e30F;
  const std::vector<std::int32_t> labels{0};
  EXPECT_EQ(softmax_cross_entropy(engine, logits.view(), labels, 0.0F, {}).sum, 0.0);
}

TEST(CrossEntropyEdgeTest, AnEmptyBatchLosesNothing) {
  Engine engine;
  const Tensor logits({0, 1, 1, 10});
  const Loss loss = softmax_cross_entropy(engine, logits.view(), {}, 0.1F, {});
  EXPECT_EQ(loss.sum, 0.0);
  EXPECT_EQ(loss.correct, 0);
}

TEST(CrossEntropyEdgeTest, RefusesLabelsOutsideTheClasses) {
  Engine engine;
  const Tensor logits({2, 1, 1, 10});
  for (const std::int32_t wrong : {-1, 10}) {
    const std::vector<std::int32_t> labels{3, wrong};
    EXPECT_THROW(softmax_cross_entropy(engine, logits.view(), labels, 0.0F, {}),
                 std::invalid_argument);
  }
  EXPECT_THROW(softmax_cross_entropy(engine, logits.view(), std::vector<std::int32_t>{1}, 0.0F, {}),
               std::invalid_argument);
}

// Views as xtensor expressions.

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

TEST(AllFiniteTest, FindsNaNAndInfinityWhereverTheyAre) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float largest = std::numeric_limits<float>::max();
  constexpr std::size_t count = 67;
  std::vector<float> values(count, -largest);
  std::vector<Bfloat16> halves(count, Bfloat16{0x7f7f});
  EXPECT_TRUE(all_finite(std::span<const float>(values)));
  EXPECT_TRUE(all_finite(std::span<const Bfloat16>(halves)));
  EXPECT_TRUE(all_finite(std::span<const float>{}));
  for (std::size_t i = 0; i < count; ++i) {
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      const float value = std::exchange(values[i], bad);
      const Bfloat16 half = std::exchange(halves[i], to_bfloat16(bad));
      EXPECT_FALSE(all_finite(std::span<const float>(values))) << "element " << i << ": " << bad;
      EXPECT_FALSE(all_finite(std::span<const Bfloat16>(halves))) << "element " << i << ": " << bad;
      values[i] = value;
      halves[i] = half;
    }
  }
}

}  // namespace
}  // namespace rondo::tensor::elementwise_test
