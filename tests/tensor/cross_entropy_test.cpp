// Softmax cross-entropy against its definition.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"

namespace rondo::tensor::cross_entropy_test {
namespace {

using test::normal_tensor;
using testing::ElementsAreArray;

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

INSTANTIATE_TEST_SUITE_P(Smoothing, CrossEntropyTest, testing::Values(0.0F, 0.1F));

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

}  // namespace
}  // namespace rondo::tensor::cross_entropy_test
