// What a model becomes on a grid: layouts, changes of layout between layers, and the parameters
// that a rank holds.

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>

#include "executor/lowering.hpp"

namespace rondo::train::lowering_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr LayerSplit by_x{.kind = SplitKind::channel, .channels = {4, 1}};
constexpr LayerSplit by_y{.kind = SplitKind::channel, .channels = {1, 4}};
constexpr LayerSplit by_w{.kind = SplitKind::channel, .channels = {2, 2}};
constexpr LayerSplit by_rows{.kind = SplitKind::space, .h = 4};
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
  EXPECT_EQ(lowering.values.back().blocks(), 1) << "all ranks judge the logits";
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
  EXPECT_THAT(adds_up_in_group(chain(), {by_images, by_rows, by_x, {}, by_outputs}, ranks),
              ElementsAre(true, true, false, false));
  EXPECT_THAT(adds_up_in_group(chain(), std::vector<LayerSplit>(5), 1),
              ElementsAre(false, false, false, false));
}

}  // namespace
}  // namespace rondo::train::lowering_test
