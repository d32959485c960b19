// grid.plan = "auto" on Worlds and models that the planner has to be asked about with care.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/grid_choice.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "trainer/prepare.hpp"

namespace rondo::train::automatic_grid_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Experiment experiment() {
  Experiment experiment = test::small_experiment();
  experiment.grid.plan = "auto";
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
    const Experiment::Grid grid = choose_grid_automatically(model, experiment(), world);

    EXPECT_EQ(grid.plan, "chosen");
    EXPECT_EQ(choose_grid(model, grid, 5, experiment().train.global_batch).grid.ranks(), 5);
  });
}

TEST(AutomaticGridTest, AModelThatCannotBeSearchedIsAMistakeInTheConfiguration) {
  rondo::test::World(2).run([](transport::World& world) {
    EXPECT_THAT([&] { (void)choose_grid_automatically(wide(), experiment(), world); },
                ThrowsMessage<ConfigError>(HasSubstr("grid.plan: \"auto\" is impossible: plan: ")));
  });
}

// A piece has 4 samples of 256.
TEST(AutomaticGridTest, PiecesOfABatchNeedLessMemory) {
  Experiment whole = experiment();
  whole.train.global_batch = 256;
  whole.train.memory_limit = 6'000'000;
  Experiment pieces = whole;
  pieces.train.accumulate = 64;

  rondo::test::World(1).run([&](transport::World& world) {
    EXPECT_THAT([&] { (void)choose_grid_automatically(make_model("lenet5"), whole, world); },
                ThrowsMessage<ConfigError>(HasSubstr("fit into the 6000000 bytes")));
    EXPECT_EQ(choose_grid_automatically(make_model("lenet5"), pieces, world).sample, 1);
  });
}

}  // namespace
}  // namespace rondo::train::automatic_grid_test
