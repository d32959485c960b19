// Initial parameters depend on (seed, name, element) and nothing else.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>

namespace rondo::train::initial_values_test {
namespace {

using testing::Each;
using testing::ElementsAreArray;

Parameter he_parameter() {
  return {.name = "conv.weight",
          .shape = {64, 16, 3, 3},
          .initial = Initial::he_normal,
          .fan_in = 144,
          .fan_out = 576};
}

std::vector<float> draw(const Parameter& parameter, std::uint64_t seed) {
  std::vector<float> values(parameter.size());
  draw_initial(parameter, seed, 0, values);
  return values;
}

double mean_of(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<float>& values) {
  const double mean = mean_of(values);
  double sum = 0.0;
  for (const float value : values) sum += std::pow(static_cast<double>(value) - mean, 2.0);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(InitialValuesTest, DrawsAnyPartAlone) {
  const Parameter parameter = he_parameter();
  const std::vector<float> whole = draw(parameter, 7);

  for (const std::size_t first : {0U, 1U, 3U, 4U, 5U, 1002U}) {
    for (const std::size_t count : {0U, 1U, 2U, 7U, 64U}) {
      std::vector<float> part(count);
      draw_initial(parameter, 7, first, part);

      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
          << first << " " << count;
    }
  }
}

TEST(InitialValuesTest, ChangesWithTheSeedAndTheName) {
  Parameter renamed = he_parameter();
  renamed.name = "other.weight";

  EXPECT_NE(draw(he_parameter(), 1), draw(he_parameter(), 2));
  EXPECT_NE(draw(he_parameter(), 1), draw(renamed, 1));
  EXPECT_EQ(draw(he_parameter(), 1), draw(he_parameter(), 1));
}

TEST(InitialValuesTest, DrawsHeNormalWithTheVarianceOfFanOut) {
  constexpr double tolerance = 0.03;  // three standard errors of 9,216 draws

  const std::vector<float> values = draw(he_parameter(), 3);

  const double deviation = std::sqrt(2.0 / 576.0);
  EXPECT_NEAR(mean_of(values) / deviation, 0.0, tolerance);
  EXPECT_NEAR(deviation_of(values) / deviation, 1.0, tolerance);
}

TEST(InitialValuesTest, DrawsUniformWithinTheBoundOfFanIn) {
  Parameter parameter = he_parameter();
  parameter.initial = Initial::uniform_fan_in;
  constexpr double bound = 1.0 / 12.0;  // 1 / sqrt(144)
  constexpr double tolerance = 0.03;

  const std::vector<float> values = draw(parameter, 3);

  EXPECT_THAT(values, Each(testing::AllOf(testing::Gt(-bound), testing::Lt(bound))));
  EXPECT_NEAR(deviation_of(values) / (bound / std::sqrt(3.0)), 1.0, tolerance);
}

TEST(InitialValuesTest, BeginsBatchNormAsTheIdentity) {
  Model model{.name = "norm", .input = {1, 1, 1, 2}, .classes = 2};
  model.layers = {{"bn", BatchNormLayer{}, {0}}};
  const ParameterLayout layout = layout_of(model);
  std::vector<float> parameters(layout.parameter_count, 9.0F);
  std::vector<float> statistics(layout.statistic_count, 9.0F);

  initialize(layout, 1, parameters, statistics);

  EXPECT_THAT(parameters, ElementsAreArray({1.0F, 1.0F, 0.0F, 0.0F}));
  EXPECT_THAT(statistics, ElementsAreArray({0.0F, 0.0F, 1.0F, 1.0F}));
}

TEST(InitialValuesTest, RefusesArraysOfTheWrongSize) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));
  std::vector<float> parameters(layout.parameter_count - 1);

  EXPECT_THROW(initialize(layout, 1, parameters, {}), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::initial_values_test
