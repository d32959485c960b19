// What shapes_of() refuses: each message names the layer and says what is wrong.

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>

namespace rondo::train::shapes_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Model with_layers(std::vector<LayerSpec> layers) {
  return {.name = "test", .input = {1, 4, 4, 1}, .classes = 2, .layers = std::move(layers)};
}

auto refuses(const char* layer, const char* reason) {
  return ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(layer), HasSubstr(reason)));
}

TEST(ShapesTest, RefusesAModelWithoutLayers) {
  EXPECT_THROW((void)shapes_of(with_layers({}), 1), std::invalid_argument);
}

TEST(ShapesTest, RefusesAValueThatNobodyHasWritten) {
  const Model model = with_layers({{"fc", FullyConnectedLayer{.outputs = 2}, {1}}});

  EXPECT_THAT([&] { (void)shapes_of(model, 1); }, refuses("layer fc", "no earlier layer writes"));
}

TEST(ShapesTest, RefusesAResidualOfAnotherShape) {
  const Model model = with_layers({{"pool", PoolingLayer{}, {0}},
                                   {"bn", BatchNormLayer{.residual = true}, {1, 0}},
                                   {"fc", FullyConnectedLayer{.outputs = 2}, {2}}});

  EXPECT_THAT([&] { (void)shapes_of(model, 1); }, refuses("layer bn", "adds 4x4x1 to 2x2x1"));
}

TEST(ShapesTest, RefusesAMissingResidual) {
  const Model model = with_layers({{"bn", BatchNormLayer{.residual = true}, {0}},
                                   {"fc", FullyConnectedLayer{.outputs = 2}, {1}}});

  EXPECT_THAT([&] { (void)shapes_of(model, 1); }, refuses("layer bn", "has 1 inputs and needs 2"));
}

TEST(ShapesTest, RefusesAWindowLargerThanItsInput) {
  const Model model = with_layers(
      {{"pool", PoolingLayer{.window = 5}, {0}}, {"fc", FullyConnectedLayer{.outputs = 2}, {1}}});

  EXPECT_THAT([&] { (void)shapes_of(model, 1); }, refuses("layer pool", "window is larger"));
}

TEST(ShapesTest, RefusesAnOutputThatNobodyReads) {
  const Model model =
      with_layers({{"pool", PoolingLayer{}, {0}}, {"fc", FullyConnectedLayer{.outputs = 2}, {0}}});

  EXPECT_THAT([&] { (void)shapes_of(model, 1); }, refuses("layer pool", "no layer reads"));
}

TEST(ShapesTest, RefusesLogitsThatAreNotOnePerClass) {
  const Model model = with_layers({{"fc", FullyConnectedLayer{.outputs = 3}, {0}}});

  EXPECT_THAT([&] { (void)shapes_of(model, 1); }, refuses("layer fc", "its 2 classes"));
}

}  // namespace
}  // namespace rondo::train::shapes_test
