// From [grid] to a split of every layer.

#include "config/grid_choice.hpp"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/assignment.hpp"
#include "config/key.hpp"
#include "train/error_text.hpp"

namespace rondo::train::grid_choice_test {
namespace {

using rondo::test::error_text;
using testing::ElementsAre;
using testing::Pair;
using testing::StrEq;

/// Splits of the layers with weights, as [grid.layers] would say them.
std::map<std::string, std::string> texts(const Model& model, const GridChoice& choice) {
  std::map<std::string, std::string> all;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerKind& kind = model.layers[i].kind;
    if ((kind.get_if<ConvolutionLayer>() != nullptr) ||
        (kind.get_if<FullyConnectedLayer>() != nullptr)) {
      all[model.layers[i].name] = to_text(choice.splits[i]);
    }
  }
  return all;
}

std::map<std::string, std::string> chosen(const char* model_name, const Experiment::Grid& config,
                                          int ranks) {
  const Model model = make_model(model_name);
  return texts(model, choose_grid(model, config, ranks, 64));
}

std::string refusal(const char* model_name, const Experiment::Grid& config, int ranks,
                    std::int64_t batch = 64) {
  return error_text<ConfigError>(
      [&] { return choose_grid(make_model(model_name), config, ranks, batch); });
}

TEST(GridChoiceTest, OneRankInAGroupMeansSamples) {
  const Model model = make_model("lenet5");

  const GridChoice choice = choose_grid(model, {}, 3, 64);

  EXPECT_EQ(choice.grid, (ProcessGrid{.pr = 1, .pc = 3}));
  EXPECT_EQ(choice.splits, std::vector<LayerSplit>(model.layers.size()));
  EXPECT_EQ(choice.batch_norm, BatchNormGroup::rank);
}

TEST(GridChoiceTest, GroupsAreWhatIsLeft) {
  const Model model = make_model("resnet8");
  const Experiment::Grid config{.channel = 2, .filter = 2, .batch_norm = "group"};

  const GridChoice choice = choose_grid(model, config, 12, 64);

  EXPECT_EQ(choice.grid, (ProcessGrid{.pr = 4, .pc = 3}));
  EXPECT_EQ(choice.batch_norm, BatchNormGroup::group);
}

// Three input channels are too few for four ranks.
TEST(GridChoiceTest, LayersThatCannotBeSplitByChannelsAreSplitBySamples) {
  EXPECT_THAT(chosen("lenet5", {.channel = 2, .filter = 2}, 4),
              ElementsAre(Pair("conv1", "sample"), Pair("conv2", "channel=2 filter=2"),
                          Pair("fc1", "channel=1 filter=4"), Pair("fc2", "channel=1 filter=4"),
                          Pair("fc3", "channel=1 filter=4")));
  EXPECT_THAT(chosen("lenet5", {.filter = 11}, 11),
              ElementsAre(Pair("conv1", "sample"), Pair("conv2", "sample"),
                          Pair("fc1", "channel=1 filter=11"), Pair("fc2", "channel=1 filter=11"),
                          Pair("fc3", "sample")));
}

// LeNet's second convolution gives 10 rows of 14.
TEST(GridChoiceTest, LayersThatCannotBeSplitInSpaceAreSplitBySamples) {
  EXPECT_EQ(chosen("lenet5", {.height = 10}, 10).at("conv2"), "height=10 width=1");
  EXPECT_EQ(chosen("lenet5", {.height = 11}, 11).at("conv2"), "sample");
  EXPECT_EQ(chosen("lenet5", {.width = 11}, 11).at("conv1"), "height=1 width=11");
}

TEST(GridChoiceTest, LayersPaddedByTheirKernelAreNotSplitInSpace) {
  const auto chosen_for = [](std::int64_t padding, const Experiment::Grid& config) {
    const ConvolutionLayer layer{.filters = 2, .kernel = 3, .padding = padding};
    const Model model{.name = "padded",
                      .input = {1, 8, 8, 2},
                      .classes = 2,
                      .layers = {{"conv", layer, {0}}, {"fc", FullyConnectedLayer{2}, {1}}}};
    return to_text(choose_grid(model, config, 2, 64).splits.front());
  };

  EXPECT_EQ(chosen_for(2, {.height = 2}), "height=2 width=1");
  EXPECT_EQ(chosen_for(3, {.height = 2}), "sample");
  EXPECT_THAT(
      error_text<ConfigError>(
          [&] { return chosen_for(3, {.height = 2, .layers = {{"conv", "height=2"}}}); }),
      StrEq("grid.layers: \"conv\" = \"height=2\": layer conv: its padding is not less than its "
            "kernel"));
}

TEST(GridChoiceTest, TheFirstPatternThatMatchesCounts) {
  const auto splits = chosen("resnet20",
                             {.channel = 2,
                              .filter = 2,
                              .layers = {{"conv1", "height=2 width=2"},
                                         {"layer1.*", "sample"},
                                         {"fc", "filter=4"},
                                         {"layer3.2.*", "group"},
                                         {"layer*", "channel=4"},
                                         {"layer2.*", "sample"}}},
                             8);

  EXPECT_EQ(splits.at("conv1"), "height=2 width=2");
  EXPECT_EQ(splits.at("layer1.0.conv1"), "sample");
  EXPECT_EQ(splits.at("fc"), "channel=1 filter=4");
  EXPECT_EQ(splits.at("layer3.2.conv2"), "group");
  EXPECT_EQ(splits.at("layer2.0.conv1"), "channel=4 filter=1");
}

// Not in that of the alphabet, which is the TOML library's.
TEST(GridChoiceTest, PatternsStandInTheOrderOfTheFile) {
  const auto written =
      ElementsAre(Pair("z*", "sample"), Pair("a", "filter=2"), Pair("m?", "group"));
  Experiment experiment;

  for (const Assignment& assignment :
       read_assignments("[grid.layers]\n'z*' = 'sample'\na = 'filter=2'\n'm?' = 'group'\n", "e")) {
    apply(assignment, experiment);
  }
  EXPECT_THAT(experiment.grid.layers, written);

  Experiment again;
  apply(read_setting("grid.layers=" + to_toml_value(experiment.grid.layers)), again);
  EXPECT_THAT(again.grid.layers, written);
}

TEST(GridChoiceTest, OnePartIsTheGroup) {
  EXPECT_EQ(chosen("lenet5", {.height = 2, .layers = {{"conv?", "height=1"}}}, 2).at("conv2"),
            "group");
}

TEST(GridChoiceTest, RefusesNumbersThatDoNotMakeTheRanks) {
  EXPECT_THAT(refusal("lenet5", {.channel = 2, .filter = 2}, 6),
              StrEq("grid: groups of 4 (channel * filter * height * width) do not divide 6 ranks"));
  EXPECT_THAT(
      refusal("lenet5", {.sample = 2, .height = 2}, 6),
      StrEq("grid.sample: 2 groups of 2 make 4 ranks, and there are 6; leave it at 0 for 3"));
}

TEST(GridChoiceTest, EveryGroupNeedsASample) {
  EXPECT_THAT(refusal("lenet5", {.height = 2}, 8, 3),
              StrEq("train.global_batch: a batch of 3 leaves some of 4 groups without a sample"));
}

TEST(GridChoiceTest, RefusesPatternsOfNothing) {
  EXPECT_THAT(refusal("lenet5", {.layers = {{"cnv2", "sample"}}}, 2),
              StrEq("grid.layers: \"cnv2\" matches no convolution or fully connected layer of "
                    "lenet5; did you mean 'conv2'?"));
  EXPECT_THAT(refusal("lenet5", {.layers = {{"pool1", "sample"}}}, 2),
              StrEq("grid.layers: \"pool1\" matches no convolution or fully connected layer of "
                    "lenet5; choose one of conv1, conv2, fc1, fc2, fc3"));
}

TEST(GridChoiceTest, RefusesPartsThatDoNotMakeAGroup) {
  EXPECT_THAT(
      refusal("lenet5", {.filter = 4, .layers = {{"conv*", "height=2"}}}, 4),
      StrEq("grid.layers: \"conv*\" = \"height=2\": layer conv1: makes 2 parts, and a group has 4 "
            "ranks (channel * filter * height * width)"));
  EXPECT_THAT(
      refusal("lenet5", {.layers = {{"fc1", "filter=2"}}}, 2),
      StrEq("grid.layers: \"fc1\" = \"filter=2\": layer fc1: makes 2 parts, and a group has "
            "1 rank (channel * filter * height * width)"));
}

TEST(GridChoiceTest, WhatIsSaidByNameMustBePossible) {
  const auto reason = [](const char* layer, const char* text, int ranks) {
    const std::string whole =
        refusal("lenet5", {.filter = ranks, .layers = {{layer, text}}}, ranks);
    return whole.substr(whole.find("layer ") + 6);
  };

  EXPECT_EQ(reason("conv1", "channel=2", 2), "conv1: its 1 channels are fewer than 2 parts");
  EXPECT_EQ(reason("conv2", "filter=17", 17), "conv2: its 6 channels are fewer than 17 parts");
  EXPECT_EQ(reason("conv2", "height=11", 11),
            "conv2: its 10 rows of output are fewer than 11 parts");
  EXPECT_EQ(reason("conv2", "width=20", 20),
            "conv2: its 14 columns of input are fewer than 20 parts");
  EXPECT_EQ(reason("fc3", "filter=11", 11), "fc3: its 10 outputs are fewer than 11 parts");
  EXPECT_EQ(reason("fc2", "height=2", 2), "fc2: a fully connected layer has no rows and columns");
  EXPECT_EQ(reason("fc2", "channel=2", 2),
            "fc2: a fully connected layer is split by its outputs alone; write \"filter=2\"");
}

}  // namespace
}  // namespace rondo::train::grid_choice_test
