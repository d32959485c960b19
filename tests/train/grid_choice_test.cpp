// From [grid], as it is written or as a plan chose it, to a split of every layer.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/plan_best.hpp>

#include "config/assignment.hpp"
#include "config/grid_choice.hpp"
#include "config/key.hpp"
#include "layers/layer_type.hpp"
#include "model/names.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "trainer/prepare.hpp"

namespace rondo::train::grid_choice_test {
namespace {

using rondo::test::error_text;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StrEq;

// From [grid] to a split of every layer.

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
  EXPECT_EQ(choice.batch_norm, BatchNormScope::rank);
}

TEST(GridChoiceTest, GroupsAreWhatIsLeft) {
  const Model model = make_model("resnet8");
  const Experiment::Grid config{.channel = 2, .filter = 2, .batch_norm = BatchNormScope::replica};
  const GridChoice choice = choose_grid(model, config, 12, 64);
  EXPECT_EQ(choice.grid, (ProcessGrid{.pr = 4, .pc = 3}));
  EXPECT_EQ(choice.batch_norm, BatchNormScope::replica);
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

// One channel is too few for two ranks, and six are for seven.
TEST(GridChoiceTest, ConvolutionsAreSplitInSpaceAndByChannelWhereBothHaveParts) {
  const auto small = chosen("lenet5", {.filter = 2, .height = 2, .width = 3}, 12);
  EXPECT_EQ(small.at("conv1"), "sample");
  EXPECT_EQ(small.at("conv2"), "height=2 width=3 filter=2");
  EXPECT_EQ(small.at("fc1"), "channel=1 filter=12");
  EXPECT_EQ(chosen("lenet5", {.channel = 7, .height = 2}, 14).at("conv2"), "sample");
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
                                         {"layer3.2.*", "replica"},
                                         {"layer*", "channel=4"},
                                         {"layer2.*", "sample"}}},
                             8);

  EXPECT_EQ(splits.at("conv1"), "height=2 width=2");
  EXPECT_EQ(splits.at("layer1.0.conv1"), "sample");
  EXPECT_EQ(splits.at("fc"), "channel=1 filter=4");
  EXPECT_EQ(splits.at("layer3.2.conv2"), "replica");
  EXPECT_EQ(splits.at("layer2.0.conv1"), "channel=4 filter=1");
}

// Not in that of the alphabet, which is the TOML library's.
TEST(GridChoiceTest, PatternsStandInTheOrderOfTheFile) {
  const auto written =
      ElementsAre(Pair("z*", "sample"), Pair("a", "filter=2"), Pair("m?", "replica"));
  Experiment experiment;

  for (const Assignment& assignment : read_assignments(
           "[grid.layers]\n'z*' = 'sample'\na = 'filter=2'\n'm?' = 'replica'\n", "e")) {
    apply(assignment, experiment);
  }
  EXPECT_THAT(experiment.grid.layers, written);

  Experiment again;
  apply(read_setting("grid.layers=" + to_toml_value(experiment.grid.layers)), again);
  EXPECT_THAT(again.grid.layers, written);
}

TEST(GridChoiceTest, OnePartIsTheGroup) {
  EXPECT_EQ(chosen("lenet5", {.height = 2, .layers = {{"conv?", "height=1"}}}, 2).at("conv2"),
            "replica");
}

struct Refused {
  Experiment::Grid config;
  int ranks;
  const char* said;
  std::int64_t batch = 64;
};

TEST(GridChoiceTest, SaysWhichKeyOfTheGridDoesNotFit) {
  const std::vector<Refused> table = {
      {{.channel = 2, .filter = 2}, 6, "grid: replicas of 4 (channel * filter * height * width)"},
      {{.sample = 2, .height = 2}, 6, "grid.sample: 2 replicas of 2 make 4 ranks, and there are 6"},
      {{.height = 2}, 8, "train.global_batch: a batch of 3 leaves some of 4 replicas without", 3},
      {{.layers = {{"cnv2", "sample"}}}, 2, "\"cnv2\" matches no convolution or fully connected"},
      {{.layers = {{"cnv2", "sample"}}}, 2, "did you mean 'conv2'?"},
      {{.layers = {{"pool1", "sample"}}}, 2, "choose one of conv1, conv2, fc1, fc2, fc3"},
      {{.filter = 4, .layers = {{"conv*", "height=2"}}},
       4,
       "grid.layers: \"conv*\" = \"height=2\": layer conv1: makes 2 parts, and a replica has 4"},
      {{.layers = {{"fc1", "filter=2"}}}, 2, "layer fc1: makes 2 parts, and a replica has 1 rank"}};
  for (const auto& [config, ranks, said, batch] : table) {
    EXPECT_THAT(refusal("lenet5", config, ranks, batch), HasSubstr(said));
  }
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
  EXPECT_EQ(reason("conv2", "height=2 channel=7", 14),
            "conv2: its 6 channels are fewer than 7 parts");
  EXPECT_THAT(reason("conv2", "height=11 filter=2", 22), HasSubstr("are fewer than 11 parts"));
  EXPECT_THAT(reason("conv2", "height=2 filter=2", 2), HasSubstr("conv2: makes 4 parts, and a"));
  EXPECT_THAT(reason("fc2", "height=2 filter=2", 4), HasSubstr("no rows and columns"));
  EXPECT_THAT(reason("fc2", "channel=2", 2), HasSubstr("is split by its outputs alone"));
}

std::string refusal_in_bf16(const Experiment::Grid& config) {
  return error_text<ConfigError>(
      [&] { return choose_grid(make_model("resnet8"), config, 8, 64, tensor::DataType::bf16); });
}

TEST(GridChoiceTest, RefusesTilesOfChannelsInBf16) {
  EXPECT_THAT(
      refusal_in_bf16({.filter = 2, .height = 2}),
      HasSubstr("train.precision: layer conv1 has no kernel for bf16 on this grid of 4 x 2"));
  EXPECT_THAT(refusal_in_bf16({.filter = 4, .layers = {{"layer2.0.conv2", "height=2 filter=2"}}}),
              HasSubstr("train.precision: layer layer2.0.conv2 has no kernel"));
}

TEST(GridChoiceTest, OtherSplitsAreThoseOfFp32InBf16) {
  const Model model = make_model("resnet8");
  const Experiment::Grid in_space{
      .filter = 2, .height = 2, .layers = {{"*conv*", "height=4"}, {"*down*", "sample"}}};
  for (const Experiment::Grid& config : {in_space, {.channel = 2, .filter = 2}}) {
    EXPECT_EQ(choose_grid(model, config, 8, 64, tensor::DataType::bf16),
              choose_grid(model, config, 8, 64));
  }
}

// grid.plan = "auto" on Worlds and models that the planner has to be asked about with care.

Experiment experiment() {
  Experiment experiment = test::small_experiment();
  experiment.grid.plan = PlanChoice::automatic;
  return experiment;
}

// Five values are to be read behind the last of them.
Model wide() {
  const ConvolutionLayer convolution{.filters = 16};
  const BatchNormLayer sum{.residual = true};
  return {.name = "wide",
          .input = {1, 8, 8, 16},
          .classes = 16,
          .layers = {{"a", convolution, {0}},
                     {"b", convolution, {1}},
                     {"c", convolution, {2}},
                     {"d", convolution, {3}},
                     {"e", convolution, {4}},
                     {"de", sum, {5, 4}},
                     {"ce", sum, {6, 3}},
                     {"be", sum, {7, 2}},
                     {"ae", sum, {8, 1}},
                     {"mean", GlobalAveragePoolingLayer{}, {9}}}};
}

// 5 ranks on 2 nodes: 3 and 2.
TEST(AutomaticGridTest, NodesMayBeOfDifferentSizes) {
  transport::WorldOptions options = rondo::test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 2};
  rondo::test::World(5, options).run([](transport::World& world) {
    const Model model = make_model("lenet5");
    const Experiment::Grid grid = choose_grid_automatically(model, experiment(), world, {}).grid;
    EXPECT_EQ(grid.plan, PlanChoice::chosen);
    EXPECT_EQ(choose_grid(model, grid, 5, experiment().train.global_batch).grid.ranks(), 5);
  });
}

TEST(AutomaticGridTest, AModelThatCannotBeSearchedIsAMistakeInTheConfiguration) {
  rondo::test::World(2).run([](transport::World& world) {
    EXPECT_THAT(error_text<ConfigError>(
                    [&] { (void)choose_grid_automatically(wide(), experiment(), world, {}); }),
                HasSubstr("grid.plan: \"auto\" is impossible: plan: "));
  });
}

// A micro-batch has 4 samples of 256.
TEST(AutomaticGridTest, PiecesOfABatchNeedLessMemory) {
  Experiment whole = experiment();
  whole.train.global_batch = 256;
  whole.train.memory_limit = 6'000'000;
  Experiment accumulated = whole;
  accumulated.train.accumulate = 64;

  rondo::test::World(1).run([&](transport::World& world) {
    EXPECT_THAT(error_text<ConfigError>([&] {
                  (void)choose_grid_automatically(make_model("lenet5"), whole, world, {});
                }),
                HasSubstr("fit into the 6000000 bytes"));
    EXPECT_EQ(choose_grid_automatically(make_model("lenet5"), accumulated, world, {}).grid.sample,
              1);
  });
}

// The [grid] section of a plan splits layers as the plan does.

constexpr std::int64_t batch = 8;

std::vector<BestPlan> plans_of(const Model& model, int ranks) {
  const LinkCost link{.alpha_seconds = 1e-6, .bandwidth = 1e9};
  const PlanOptions options{.ranks = ranks, .batch = batch, .fabric = link, .node = link};
  return best_plans(model, options, FlopRate(1e11));
}

TEST(PlanSectionTest, KeysSplitLayersAsThePlanDoes) {
  for (const std::string name : {"resnet20", "resnet18", "alexnet"}) {
    const Model model = make_model(name);
    for (const int ranks : {1, 6, 8}) {
      for (const BestPlan& plan : plans_of(model, ranks)) {
        const GridChoice choice = choose_grid(model, grid_keys(plan), ranks, batch);

        EXPECT_EQ(choice.grid, plan.grid);
        ASSERT_EQ(choice.splits.size(), plan.splits.size());
        for (std::size_t i = 0; i < plan.splits.size(); ++i) {
          if (!has_weights(model.layers[i])) continue;
          EXPECT_EQ(choice.splits[i], plan.splits[i]) << name << "\n" << grid_section(plan);
        }
      }
    }
  }
}

TEST(PlanSectionTest, WritesEveryLayer) {
  const BestPlan plan = {.grid = {.pr = 4, .pc = 2},
                         .layers = {{.name = "a", .split = {.kind = SplitKind::replica}},
                                    {.name = "b", .split = {SplitKind::space, 2, 2, {}}}}};
  EXPECT_EQ(grid_section(plan),
            "[grid]\nsample = 2\nfilter = 4\n\n[grid.layers]\n\"a\" = \"replica\"\n"
            "\"b\" = \"height=2 width=2\"\n");
  EXPECT_EQ(split_text({.kind = SplitKind::sample}), "sample");
}

// Else whoever copies it would train with other statistics than it was planned with.
TEST(PlanSectionTest, KeepsTheScopeOfBatchNorm) {
  const BestPlan plan = {.grid = {.pr = 1, .pc = 4}};
  EXPECT_EQ(grid_section(plan), "[grid]\nsample = 4\n");
  EXPECT_EQ(grid_section(plan, BatchNormScope::all), "[grid]\nsample = 4\nbatch_norm = \"all\"\n");
}

// How the split of a layer is written.

// A part that is not said is one; one part of images or channels is a split of the others.
TEST(SplitTextTest, ReadsEveryKind) {
  const std::vector<std::pair<const char*, LayerSplit>> table = {
      {"sample", {.kind = SplitKind::sample}},
      {" replica ", {.kind = SplitKind::replica}},
      {"height=2 width=3", {.kind = SplitKind::space, .h = 2, .w = 3}},
      {"width=3", {.kind = SplitKind::space, .w = 3}},
      {"filter=4  channel=2", {.kind = SplitKind::channel, .channels = {2, 4}}},
      {"filter=3", {.kind = SplitKind::channel, .channels = {1, 3}}},
      {"filter=4 height=2", {.kind = SplitKind::space_and_channel, .h = 2, .channels = {1, 4}}},
      {"height=1 width=1 filter=2", {.kind = SplitKind::channel, .channels = {1, 2}}},
      {"height=2 channel=1 filter=1", {.kind = SplitKind::space, .h = 2}}};
  for (const auto& [text, split] : table) EXPECT_EQ(read_split(text), split) << text;
}

TEST(SplitTextTest, ReadsWhatItWrites) {
  for (const char* text : {"sample", "replica", "height=2 width=1", "channel=3 filter=5",
                           "height=2 width=3 channel=4 filter=5", "width=2 channel=2"}) {
    EXPECT_EQ(to_text(read_split(text)), text);
  }
}

TEST(SplitTextTest, SaysWhatIsWrong) {
  EXPECT_THAT(complaint_about_split(" "), HasSubstr("is empty; write sample, replica, "));
  EXPECT_THAT(complaint_about_split("samples"), HasSubstr("'samples' is no split; write "));
  EXPECT_THAT(complaint_about_split("sample replica"), HasSubstr("'sample' is no split; write "));
  EXPECT_THAT(complaint_about_split("rows=2"), HasSubstr("unknown part 'rows'; choose one of "));
  EXPECT_THAT(complaint_about_split("height=2 height=2"), HasSubstr("gives 'height' twice"));
  for (const char* text : {"width=", "width=0", "width=-1", "width=2x", "width=99999999999"}) {
    EXPECT_THAT(complaint_about_split(text), HasSubstr("a number of parts from 1 to 4096"));
  }
}

// Names by pattern, against a matcher that tries everything.

bool by_trying(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return by_trying(pattern.substr(1), name) ||
           (!name.empty() && by_trying(pattern, name.substr(1)));
  }
  if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return false;
  return by_trying(pattern.substr(1), name.substr(1));
}

/// All words of up to `length` of the letters.
std::vector<std::string> words(std::string_view letters, std::size_t length) {
  std::vector<std::string> all{""};
  for (std::size_t first = 0; all.back().size() < length; ++first) {
    const std::string start = all[first];
    for (const char letter : letters) all.push_back(start + letter);
  }
  return all;
}

TEST(NamePatternTest, AgreesWithTryingEverything) {
  for (const std::string& pattern : words("ab*?", 5)) {
    for (const std::string& name : words("ab", 5)) {
      EXPECT_EQ(matches(pattern, name), by_trying(pattern, name)) << pattern << " and " << name;
    }
  }
}

TEST(NamePatternTest, MatchesWholeNames) {
  EXPECT_TRUE(matches("layer4.*", "layer4.0.conv1"));
  EXPECT_TRUE(matches("*conv?", "layer4.0.conv1"));
  EXPECT_FALSE(matches("layer4", "layer4.0.conv1"));
  EXPECT_FALSE(matches("layer4.?", "layer4.0.conv1"));
}

}  // namespace
}  // namespace rondo::train::grid_choice_test
