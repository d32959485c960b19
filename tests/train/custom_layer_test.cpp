// A kind of layer and a model that the library does not know, made here: it trains them, alone and
// split over ranks, and plans their splits.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/executor.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/transport/world.hpp>

#include "layers/layer_type.hpp"
#include "support/world.hpp"
#include "train/support/network.hpp"

namespace rondo::train::custom_layer_test {
namespace {

// The layer: every value times a factor.
struct ScaleLayer {
  float factor = 1.0F;
};

class ScaleKernel final : public OneForwardKernel {
 public:
  explicit ScaleKernel(float factor) : factor_(factor) {}
  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data != nullptr) scale(operands.dy.as<float>(), operands.dx.as<float>());
  }

 private:
  void forward(const ForwardOperands& operands) override {
    scale(operands.x.as<float>(), operands.y.as<float>());
  }
  void scale(tensor::View<const float> from, tensor::View<float> into) const {
    std::transform(from.data, from.data + from.shape.size(), into.data,
                   [this](float value) { return factor_ * value; });
  }

  float factor_;
};

class Scale final : public LayerType {
 public:
  explicit Scale(const ScaleLayer& layer) : factor_(layer.factor) {}
  std::string text() const override { return "scale " + std::to_string(factor_); }
  tensor::Shape output(const tensor::Shape& input) const override { return input; }
  std::unique_ptr<LayerKernel> kernel(tensor::Engine& /*engine*/, const tensor::Shape& /*input*/,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    return std::make_unique<ScaleKernel>(factor_);
  }

 private:
  float factor_;
};

std::shared_ptr<const LayerType> make_layer_type(const ScaleLayer& layer) {
  return std::make_shared<Scale>(layer);
}

// The model.
template <bool scales>
Model make_toy(tensor::Shape input, std::int64_t classes) {
  ModelBuilder builder("toy", input, classes);
  ValueId x = builder.add("conv", ConvolutionLayer{.filters = 4}, ModelBuilder::input);
  if (scales) x = builder.add("scale", ScaleLayer{.factor = 2.0F}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

constexpr ModelEntry scaled{"scaled", {1, 8, 8, 2}, 3, &make_toy<true>};
constexpr ModelEntry plain{"plain", {1, 8, 8, 2}, 3, &make_toy<false>};
constexpr std::int64_t images = 4;

test::Network network(const ModelEntry& entry) {
  return {make_model(entry), {.training_batches = {images}}};
}

// Images of twice the value, in a model without the layer, give the same bits.
TEST(CustomLayerTest, TrainsAsWhatItComputes) {
  test::Network with = network(scaled);
  test::Network without = network(plain);
  const test::Samples samples = test::make_samples(with.model, images);
  test::Samples doubled = samples;
  for (float& value : doubled.images) value *= 2.0F;

  const tensor::Loss loss = with.train(samples.batch());

  EXPECT_EQ(loss.sum, without.train(doubled.batch()).sum);
  EXPECT_EQ(with.gradients, without.gradients);
}

TEST(CustomLayerTest, FollowsTheLayoutOfItsInputOnAGrid) {
  const Model model = make_model(scaled);
  test::Network whole = network(scaled);
  const test::Samples samples = test::make_samples(model, images);
  const double expected = whole.train(samples.batch()).sum;
  const std::vector<LayerSplit> splits = {{.kind = SplitKind::space, .h = 2}, {}, {}};

  rondo::test::World(2).run([&](transport::World& world) {
    const ParameterLayout layout = layout_of(model, splits, 2, world.rank());
    std::vector<float> parameters(layout.parameter_count);
    std::vector<float> gradients(layout.parameter_count);
    std::ranges::copy(whole.parameters, parameters.begin());
    tensor::Engine engine;
    Executor executor(
        engine, model,
        {.replica = &world.communicator(), .splits = splits, .memory = &world.arena()},
        {parameters, gradients, {}}, {.training_batches = {images}});
    test::Silent silent;

    double sum = executor.train(samples.batch(), silent).sum;
    world.communicator().allreduce(std::span(&sum, 1)).wait();

    EXPECT_NEAR(sum, expected, 1e-5 * expected);
  });
}

TEST(CustomLayerTest, HasPlans) {
  const std::vector<BestPlan> plans =
      best_plans(make_model(scaled), {.ranks = 4, .batch = 8}, FlopRate(1e9));

  ASSERT_FALSE(plans.empty());
  EXPECT_EQ(plans.front().refused, "");
  EXPECT_EQ(work_of(make_model(scaled), {.ranks = 4, .batch = 8}, plans.front()).size(), 3U);
}

}  // namespace
}  // namespace rondo::train::custom_layer_test
