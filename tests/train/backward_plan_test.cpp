// Replays plans of backward on symbols: every gradient is complete when it is read, and nothing
// that is still needed is overwritten.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>

#include "executor/graph.hpp"
#include "train/support/network.hpp"

namespace rondo::train::backward_plan_test {
namespace {

using Readers = std::multiset<std::size_t>;  // layers

// What a buffer holds: the gradient of `value`, from `readers` so far.
struct Content {
  ValueId value = 0;
  Readers readers = {};
};

// Runs a plan, with sets of readers in place of numbers.
class Replay {
 public:
  explicit Replay(const Model& model) : model_(model), plan_(plan_backward(model)) {
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      for (const ValueId input : model.layers[i].inputs) readers_[input].insert(i);
    }
  }

  void run() {
    buffers_[plan_.logits] = {model_.layers.size(), {}};
    for (const BackwardStep& step : plan_.steps) run(step);
  }

  [[nodiscard]] std::set<ValueId> finished() const { return finished_; }

 private:
  void run(const BackwardStep& step) {
    const std::vector<ValueId>& inputs = model_.layers[step.node].inputs;
    Content dy = buffers_[step.dy];
    if (step.dy_also) {
      EXPECT_EQ(buffers_[*step.dy_also].value, dy.value) << "dy_also of layer " << step.node;
      dy.readers.merge(buffers_[*step.dy_also].readers);
      buffers_.erase(*step.dy_also);
    }
    EXPECT_EQ(dy.value, step.node + 1) << "dy of layer " << step.node;
    EXPECT_EQ(dy.readers, readers_[step.node + 1]) << "dy of layer " << step.node;
    finished_.insert(dy.value);
    buffers_.erase(step.dy);
    EXPECT_TRUE(!step.dx || step.dx != step.dy_also) << "dx of layer " << step.node;
    if (step.dx) write(*step.dx, {inputs[0], {step.node}});
    if (!step.inputs.empty()) return run_several(step, inputs);
    if (inputs.size() == 2) write(step.dy, {inputs[1], {step.node}});
    if (step.add_dx_to) add(*step.dx, *step.add_dx_to);
    if (step.add_residual_to) add(step.dy, *step.add_residual_to);
  }

  // The kernel writes all, then they are added to what there is.
  void run_several(const BackwardStep& step, const std::vector<ValueId>& inputs) {
    ASSERT_EQ(step.inputs.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(i == 0 || step.inputs[i].dx != step.dy) << "input of layer " << step.node;
      if (step.inputs[i].dx) write(*step.inputs[i].dx, {inputs[i], {step.node}});
    }
    for (const InputGradient& input : step.inputs) {
      if (input.add_to) add(*input.dx, *input.add_to);
    }
  }

  // A gradient that somebody will still read must not lie there; the input's is read by nobody.
  void write(BufferId buffer, Content content) {
    const auto old = buffers_.find(buffer);
    if (old != buffers_.end() && old->second.value != 0) {
      EXPECT_TRUE(finished_.contains(old->second.value)) << "buffer " << buffer;
    }
    buffers_[buffer] = std::move(content);
  }

  void add(BufferId from, BufferId into) {
    EXPECT_EQ(buffers_[from].value, buffers_[into].value);
    buffers_[into].readers.merge(buffers_[from].readers);
    buffers_.erase(from);
  }

  const Model& model_;
  BackwardPlan plan_;
  std::map<ValueId, Readers> readers_;
  std::map<BufferId, Content> buffers_;
  std::set<ValueId> finished_;
};

void expect_correct(const Model& model) {
  Replay replay(model);

  replay.run();

  EXPECT_EQ(replay.finished().size(), model.layers.size());
}

TEST(BackwardPlanTest, ServesEveryModelOfTheZoo) {
  for (const std::string& name : model_names()) expect_correct(make_model(name));
}

TEST(BackwardPlanTest, ServesIdentityAndProjectionShortcuts) {
  expect_correct(test::small_residual_model());
}

TEST(BackwardPlanTest, ServesALayerThatAddsItsOwnInput) {
  Model model{.name = "twice", .input = {1, 2, 2, 1}, .classes = 2};
  model.layers = {{"pool", PoolingLayer{.window = 1, .stride = 1}, {0}},
                  {"bn", BatchNormLayer{.residual = true}, {1, 1}},
                  {"fc", FullyConnectedLayer{.outputs = 2}, {2}}};

  expect_correct(model);
}

TEST(BackwardPlanTest, ServesABatchNormBehindTheInput) {
  Model model{.name = "first", .input = {1, 2, 2, 1}, .classes = 2};
  model.layers = {{"bn1", BatchNormLayer{}, {0}},
                  {"bn2", BatchNormLayer{.residual = true}, {0, 1}},
                  {"fc", FullyConnectedLayer{.outputs = 2}, {2}}};

  expect_correct(model);
}

TEST(BackwardPlanTest, WantsNoGradientOfTheInputInAnotherLayout) {
  const Graph graph{.nodes = {{.inputs = {0}}, {.layer = 0, .inputs = {1}}}};

  const BackwardPlan plan = plan_backward(graph, {4, 4, 2});

  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].node, 1U);
  EXPECT_FALSE(plan.steps[0].dx);
}

TEST(BackwardPlanTest, ServesAValueWithThreeReaders) {
  Model model{.name = "three", .input = {1, 2, 2, 1}, .classes = 2};
  model.layers = {{"bn1", BatchNormLayer{}, {0}},
                  {"bn2", BatchNormLayer{.residual = true}, {1, 1}},
                  {"bn3", BatchNormLayer{.residual = true}, {2, 1}},
                  {"fc", FullyConnectedLayer{.outputs = 2}, {3}}};

  expect_correct(model);
}

TEST(BackwardPlanTest, ServesLayersWithSeveralInputs) {
  Model model{.name = "several", .input = {1, 2, 2, 1}, .classes = 2};
  model.layers = {{"a", PoolingLayer{.window = 1, .stride = 1}, {0}},
                  {"b", ActivationLayer{}, {1}},
                  {"sum", AddLayer{}, {2, 1, 0}},
                  {"twice", AddLayer{}, {3, 3}},
                  {"join", ConcatLayer{}, {4, 1, 3, 4}},
                  {"drop", DropoutLayer{}, {5}},
                  {"fc", FullyConnectedLayer{.outputs = 2}, {6}}};

  expect_correct(model);
}

// The sum's gradient goes on as the convolution's; the shortcut's is a copy.
TEST(BackwardPlanTest, KeepsAPreactivationNetworkInThreeBuffers) {
  EXPECT_LE(plan_backward(make_model("preact_resnet20")).elements.size(), 3U);
}

TEST(BackwardPlanTest, LeavesAdditionsToBatchNormInResnet20) {
  for (const BackwardStep& step : plan_backward(make_model("resnet20")).steps) {
    EXPECT_FALSE(step.add_dx_to) << step.node;
    EXPECT_FALSE(step.add_residual_to) << step.node;
  }
}

TEST(BackwardPlanTest, KeepsAChainInTwoBuffers) {
  const BackwardPlan plan = plan_backward(make_model("lenet5"));

  EXPECT_EQ(plan.elements.size(), 2U);
}

TEST(BackwardPlanTest, KeepsAResidualNetworkInThreeBuffers) {
  const BackwardPlan plan = plan_backward(make_model("resnet20"));

  EXPECT_LE(plan.elements.size(), 3U);
}

TEST(BackwardPlanTest, MakesBuffersLargeEnoughForAllThatLiesInThem) {
  const Model model = make_model("resnet20");
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  const BackwardPlan plan = plan_backward(model);

  for (const BackwardStep& step : plan.steps) {
    EXPECT_GE(plan.elements[step.dy], shapes[step.node + 1].size());
    if (step.dx) {
      EXPECT_GE(plan.elements[*step.dx], shapes[model.layers[step.node].inputs[0]].size());
    }
  }
}

}  // namespace
}  // namespace rondo::train::backward_plan_test
