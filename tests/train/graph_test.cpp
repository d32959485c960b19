// From a model and its splits to the graph that a rank runs, forward and backward.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/layer_kernel.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>

#include "executor/graph.hpp"
#include "executor/lowering.hpp"
#include "train/support/network.hpp"
#include "train/support/own_layer.hpp"

namespace rondo::train::graph_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A model on a grid: layouts, changes of layout between layers, and the parameters that a rank
// holds.

constexpr LayerSplit by_x{.kind = SplitKind::channel, .channels = {4, 1}};
constexpr LayerSplit by_y{.kind = SplitKind::channel, .channels = {1, 4}};
constexpr LayerSplit by_w{.kind = SplitKind::channel, .channels = {2, 2}};
constexpr LayerSplit by_rows{.kind = SplitKind::space, .h = 4};
constexpr LayerSplit by_tiles{
    .kind = SplitKind::space_and_channel, .h = 2, .channels = {.filters = 2}};
constexpr LayerSplit by_outputs = by_y;
constexpr LayerSplit by_images{};
constexpr int ranks = 4;

LayerSpec convolution(const std::string& name, std::int64_t filters, ValueId input) {
  return {name, ConvolutionLayer{.filters = filters}, {input}};
}

// `layers`, then the mean of every channel and ten outputs.
Model model_of(std::vector<LayerSpec> layers) {
  layers.push_back({"mean", GlobalAveragePoolingLayer{}, {layers.size()}});
  layers.push_back({"fc", FullyConnectedLayer{.outputs = 10}, {layers.size()}});
  return {.name = "test", .input = {1, 8, 8, 16}, .classes = 10, .layers = std::move(layers)};
}

Model chain() {
  return model_of({convolution("a", 8, 0), convolution("b", 16, 1), convolution("c", 8, 2)});
}

Lowering lower_with_head(const Model& model, std::vector<LayerSplit> splits, LayerSplit last) {
  splits.push_back({});
  splits.push_back(last);
  return lower(model, splits, ranks, 4);
}

std::vector<bool> changes_of_layout(const Lowering& lowering) {
  std::vector<bool> changes;
  for (const GraphNode& node : lowering.graph.nodes) changes.push_back(!node.layer);
  return changes;
}

TEST(LoweringTest, NeedsNoChangeOfLayoutBetweenStationaryXAndY) {
  const Lowering lowering = lower_with_head(chain(), {by_y, by_x, by_y}, by_outputs);
  EXPECT_THAT(changes_of_layout(lowering), ElementsAre(false, false, false, false, true, false));
  EXPECT_EQ(lowering.values.front().parts(), (Parts{.c = ranks}));
  EXPECT_EQ(lowering.values.back().blocks(), 1) << "all ranks compute the loss";
}

TEST(LoweringTest, ChainsStationaryWByTransposedBlocks) {
  const Lowering lowering = lower_with_head(chain(), {by_w, by_w, by_w}, by_outputs);
  EXPECT_THAT(changes_of_layout(lowering), ElementsAre(false, false, false, false, true, false));
  EXPECT_NE(lowering.values[1].block_of(1), lowering.values[0].block_of(1));
  EXPECT_EQ(lowering.values[2].block_of(1), lowering.values[0].block_of(1));
}

TEST(LoweringTest, ChangesTheLayoutWhereNeighboursDisagree) {
  const Lowering lowering = lower_with_head(chain(), {by_rows, by_rows, by_images}, by_images);
  EXPECT_THAT(changes_of_layout(lowering), ElementsAre(false, false, true, false, false, false));
  EXPECT_EQ(lowering.values.back().parts(), (Parts{.n = ranks})) << "logits may lie by sample";
}

TEST(LoweringTest, MovesAValueOnceForTwoReaders) {
  const Model model = model_of({convolution("a", 8, 0),
                                convolution("b", 8, 1),
                                {"bn", BatchNormLayer{.residual = true}, {2, 1}}});
  const Lowering lowering = lower_with_head(model, {by_rows, by_images, {}}, by_images);
  EXPECT_THAT(changes_of_layout(lowering), ElementsAre(false, true, false, false, false, false));
  EXPECT_THAT(lowering.graph.nodes[3].inputs, ElementsAre(3, 2));
  EXPECT_TRUE(lowering.graph.nodes[3].batch_norm);
}

TEST(LoweringTest, LeavesAllRanksTheGlobalAverageOfAImageSplitInSpace) {
  const Model model = model_of({convolution("a", 8, 0)});
  EXPECT_EQ(lower_with_head(model, {by_rows}, by_outputs).values[2].blocks(), 1);
  EXPECT_EQ(lower_with_head(model, {by_images}, by_images).values[2].parts(), (Parts{.n = ranks}));
}

TEST(LoweringTest, IsTheModelItselfOnOneRank) {
  const Model model = make_model("resnet20");
  const Lowering lowering = lower(model, std::vector<LayerSplit>(model.layers.size()), 1, 3);
  const Graph whole = graph_of(model);
  ASSERT_EQ(lowering.graph.nodes.size(), whole.nodes.size());
  for (std::size_t i = 0; i < whole.nodes.size(); ++i) {
    EXPECT_EQ(lowering.graph.nodes[i].inputs, whole.nodes[i].inputs) << i;
    EXPECT_EQ(lowering.values[i + 1].extents(), shapes_of(model, 3)[i + 1]) << i;
  }
}

// Everything else follows its input; a concatenation needs all channels.
TEST(LoweringTest, GathersTheChannelsOfWhatIsJoined) {
  const Model model =
      model_of({convolution("a", 8, 0), convolution("b", 8, 1), {"join", ConcatLayer{}, {1, 2}}});

  const Lowering lowering = lower_with_head(model, {by_y, by_x, {}}, by_outputs);

  EXPECT_THAT(changes_of_layout(lowering),
              ElementsAre(false, false, true, true, false, false, false));
  EXPECT_EQ(lowering.values[5].blocks(), 1);
  EXPECT_EQ(lowering.values[5].extents().c, 16);
}

TEST(LoweringTest, LeavesWhatIsJoinedCutInRows) {
  const Model model =
      model_of({convolution("a", 8, 0), convolution("b", 4, 1), {"join", ConcatLayer{}, {1, 2}}});

  const Lowering lowering = lower_with_head(model, {by_rows, by_rows, {}}, by_outputs);

  EXPECT_EQ(lowering.values[3].parts(), (Parts{.h = ranks}));
}

TEST(LoweringTest, RefusesGroupsThatAreSplitByChannel) {
  const Model model = model_of({{"deep", ConvolutionLayer{.filters = 16, .groups = 16}, {0}}});

  try {
    static_cast<void>(lower_with_head(model, {by_x}, by_outputs));
    FAIL() << "nothing was refused";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer deep: a convolution in groups cannot be split by"));
  }
}

TEST(LoweringTest, RefusesSplitsThatDoNotGiveEveryRankAPart) {
  const auto refused = [](std::vector<LayerSplit> splits) {
    try {
      static_cast<void>(lower(chain(), splits, ranks, 2));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };

  EXPECT_THAT(refused({by_images, {.kind = SplitKind::space, .h = 3}, by_images, {}, {}}),
              HasSubstr("layer b: a split in 3 x 1 parts"));
  LayerSplit too_many = by_tiles;
  too_many.channels = {2, 2};
  EXPECT_THAT(refused({by_images, by_images, too_many, {}, {}}),
              HasSubstr("layer c: a split in 2 x 1 x 2 x 2 parts"));
  EXPECT_THAT(refused({by_images, by_images}), HasSubstr("needs as many splits, not 2"));
}

TEST(SlicesTest, CutWeightsByChannelsAndFilters) {
  const Lowering lowering = lower_with_head(chain(), {by_x, by_y, by_w}, by_outputs);

  const ParameterLayout layout = layout_of(chain(), lowering, 1);

  EXPECT_THAT(layout.parameters[0].shape, ElementsAre(8, 4, 3, 3));
  EXPECT_THAT(layout.parameters[0].whole, ElementsAre(8, 16, 3, 3));
  EXPECT_THAT(layout.parameters[0].first, ElementsAre(0, 4, 0, 0));
  EXPECT_THAT(layout.parameters[1].shape, ElementsAre(4, 8, 3, 3));
  EXPECT_THAT(layout.parameters[2].shape, ElementsAre(4, 8, 3, 3));
  EXPECT_THAT(layout.parameters[2].first, ElementsAre(4, 0, 0, 0));
  EXPECT_EQ(layout.blocks[2].offset, layout.blocks[1].offset + layout.blocks[1].size);
}

// Every element of every parameter is held by some rank, and drawn as in the whole model.
TEST(SlicesTest, DrawWhatTheWholeModelDraws) {
  const Model model = make_model("lenet5");
  const std::vector<LayerSplit> splits(model.layers.size(), by_outputs);
  const ParameterLayout whole = layout_of(model);
  std::vector<float> expected(whole.parameter_count);
  initialize(whole, 7, expected, {});
  std::ranges::sort(expected);
  std::size_t found = 0;

  for (int rank = 0; rank < ranks; ++rank) {
    const ParameterLayout part = layout_of(model, splits, ranks, rank);
    std::vector<float> drawn(part.parameter_count);
    initialize(part, 7, drawn, {});
    for (const float value : drawn) found += std::ranges::binary_search(expected, value) ? 1 : 0;
    EXPECT_LT(part.parameter_count, whole.parameter_count / 2) << rank;
  }

  EXPECT_EQ(found, whole.parameter_count);
}

TEST(SlicesTest, KnowWhichGradientsAddUpInAGroup) {
  EXPECT_THAT(slices_in_replica(chain(), {by_images, by_rows, by_x, {}, by_outputs}, ranks),
              ElementsAre(1, 1, 4, 4));
  EXPECT_THAT(slices_in_replica(chain(), {by_tiles, by_w, by_images, {}, by_outputs}, ranks),
              ElementsAre(2, 4, 1, 4));
  EXPECT_THAT(slices_in_replica(chain(), std::vector<LayerSplit>(5), 1), ElementsAre(1, 1, 1, 1));
}

// Two tiles have the same two slices: those of positions that are equal modulo 2.
TEST(SlicesTest, TilesHoldTheSameSlices) {
  const Lowering lowering = lower_with_head(chain(), {by_tiles, by_tiles, by_rows}, by_outputs);
  std::vector<Parameter> weights;
  for (int rank = 0; rank < ranks; ++rank) {
    weights.push_back(layout_of(chain(), lowering, rank).parameters.front());
  }

  EXPECT_THAT(weights[0].shape, ElementsAre(4, 16, 3, 3));
  EXPECT_THAT(weights[0].first, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(weights[1].first, ElementsAre(4, 0, 0, 0));
  EXPECT_EQ(weights[2].first, weights[0].first);
  EXPECT_EQ(weights[3].first, weights[1].first);
}

TEST(LoweringTest, AllRanksHoldTheMeansOfTiles) {
  const Lowering lowering = lower_with_head(chain(), {by_tiles, by_tiles, by_tiles}, by_outputs);

  EXPECT_THAT(changes_of_layout(lowering), testing::Each(false));
  EXPECT_EQ(lowering.layouts[3].x.parts(), (Parts{.h = 2, .c = 2}));
  EXPECT_EQ(lowering.layouts[3].y.blocks(), 1);
}

// 5 replicas have 2, 2, 3, 2 and 3 of 12 images.
TEST(LoweringTest, CountsWhatReplicasOfOneSizeSendOnce) {
  std::vector<std::int64_t> images;
  // It sends a value for each image.
  const test::OwnLayer asked{.traffic = [&](const NodeLayout& layout) {
    images.push_back(layout.x.extents().n);
    return LayerTraffic{.forward = static_cast<std::uint64_t>(layout.x.extents().n)};
  }};
  const Model model = model_of({{"asked", asked, {0}}});
  const std::vector<LayerSplit> splits(model.layers.size());

  const auto bytes = activation_bytes(model, splits, {.pr = 2, .pc = 5}, 12, tensor::DataType::f32);

  EXPECT_THAT(images, ElementsAre(2, 3));
  EXPECT_EQ(bytes.front(), 12 * sizeof(float));
}

// Replays plans of backward on symbols: every gradient is complete when it is read, and nothing
// that is still needed is overwritten.

using Readers = std::multiset<std::size_t>;  // layers

// The content of a buffer: the gradient of `value`, from `readers` so far.
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

// A layer adds its own input, or that of the model; a value has three readers; layers have several
// inputs.
TEST(BackwardPlanTest, ServesEveryReaderOfAValue) {
  const BatchNormLayer sum{.residual = true};
  const PoolingLayer copy{.window = 1, .stride = 1};
  const FullyConnectedLayer last{.outputs = 2};
  const std::vector<LayerSpec> networks[] = {
      {{"pool", copy, {0}}, {"bn", sum, {1, 1}}, {"fc", last, {2}}},
      {{"bn1", BatchNormLayer{}, {0}}, {"bn2", sum, {0, 1}}, {"fc", last, {2}}},
      {{"bn1", BatchNormLayer{}, {0}},
       {"bn2", sum, {1, 1}},
       {"bn3", sum, {2, 1}},
       {"fc", last, {3}}},
      {{"a", copy, {0}},
       {"b", ActivationLayer{}, {1}},
       {"sum", AddLayer{}, {2, 1, 0}},
       {"twice", AddLayer{}, {3, 3}},
       {"join", ConcatLayer{}, {4, 1, 3, 4}},
       {"drop", DropoutLayer{}, {5}},
       {"fc", last, {6}}}};
  for (const std::vector<LayerSpec>& layers : networks) {
    expect_correct({.name = "test", .input = {1, 2, 2, 1}, .classes = 2, .layers = layers});
  }
}

TEST(BackwardPlanTest, WantsNoGradientOfTheInputInAnotherLayout) {
  const Graph graph{.nodes = {{.inputs = {0}}, {.layer = 0, .inputs = {1}}}};
  const BackwardPlan plan = plan_backward(graph, {4, 4, 2});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].node, 1U);
  EXPECT_FALSE(plan.steps[0].dx);
}

// Before the activation the sum's gradient goes on as the convolution's; the shortcut's is a copy.
TEST(BackwardPlanTest, KeepsAChainInTwoBuffersAndResidualNetworksInThree) {
  EXPECT_EQ(plan_backward(make_model("lenet5")).elements.size(), 2U);
  EXPECT_LE(plan_backward(make_model("resnet20")).elements.size(), 3U);
  EXPECT_LE(plan_backward(make_model("preact_resnet20")).elements.size(), 3U);
}

TEST(BackwardPlanTest, LeavesAdditionsToBatchNormInResnet20) {
  for (const BackwardStep& step : plan_backward(make_model("resnet20")).steps) {
    EXPECT_FALSE(step.add_dx_to) << step.node;
    EXPECT_FALSE(step.add_residual_to) << step.node;
  }
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
}  // namespace rondo::train::graph_test
