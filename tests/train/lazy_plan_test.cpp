// Which layers of a model are lazy.

#include "schemes/lazy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>

namespace rondo::train::lazy_plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using Kind = LazyLayers::Kind;

TEST(LazyPlanTest, AConvolutionTakesItsBatchNormAlong) {
  const Model model = make_model("resnet8");
  const ParameterLayout layout = layout_of(model);
  const LazyPlan plan = plan_lazy_layers(model, {Kind::count, 2});

  EXPECT_THAT(plan.names, ElementsAre("conv1", "layer1.0.conv1"));
  EXPECT_EQ(plan.layers, 4U);
  EXPECT_EQ(layout.blocks[3].name, "layer1.0.bn1");
  EXPECT_EQ(plan.probes.at(0).size, 16U * 3 * 9);
  EXPECT_EQ(plan.probes.at(1).offset, layout.blocks[2].offset);
  EXPECT_EQ(plan.probes.at(1).size, 16U * 16 * 9);
}

TEST(LazyPlanTest, ABiasIsNoPartOfTheProbe) {
  const LazyPlan plan = plan_lazy_layers(make_model("lenet5"), {Kind::count, 2});

  EXPECT_EQ(plan.layers, 2U);
  EXPECT_EQ(plan.probes.at(1).offset, 6U * 25 + 6);
  EXPECT_EQ(plan.probes.at(1).size, 16U * 6 * 25);
}

TEST(LazyPlanTest, AFractionIsRoundedButNotToNone) {
  const Model model = make_model("resnet8");  // 9 convolutions

  EXPECT_EQ(plan_lazy_layers(model, {Kind::fraction, 0.5}).names.size(), 5U);
  EXPECT_EQ(plan_lazy_layers(model, {Kind::fraction, 0.01}).names.size(), 1U);
  EXPECT_EQ(plan_lazy_layers(model, {Kind::fraction, 1.0}).names.size(), 9U);
  EXPECT_THAT(plan_lazy_layers(model, {Kind::fraction, 0.0}).names, IsEmpty());
}

TEST(LazyPlanTest, AutoTakesTheUnhiddenConvolutionsAndOneAtLeast) {
  const Model model = make_model("resnet8");

  EXPECT_THAT(plan_lazy_layers(model, {}, 0).names, ElementsAre("conv1"));
  EXPECT_THAT(plan_lazy_layers(model, {}, 2).names, ElementsAre("conv1"));
  EXPECT_THAT(plan_lazy_layers(model, {}, 3).names, ElementsAre("conv1", "layer1.0.conv1"));
  EXPECT_EQ(plan_lazy_layers(model, {}, 1000).names.size(), 9U);
}

TEST(LazyPlanTest, RefusesMoreConvolutionsThanThereAre) {
  EXPECT_THAT([] { static_cast<void>(plan_lazy_layers(make_model("lenet5"), {Kind::count, 3})); },
              ThrowsMessage<ConfigError>(HasSubstr(
                  "update.lazy_layers: lenet5 has 2 convolutions that can be lazy, and not 3")));
}

}  // namespace
}  // namespace rondo::train::lazy_plan_test
