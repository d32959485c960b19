// The closed forms of the cost model, by hand and as the literature found them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/train/plan.hpp>

#include "support/error_text.hpp"

namespace rondo::train::plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The closed forms of the cost model: numbers worked out by hand for a network of two layers, and
// symmetries.

constexpr double alpha = 3.0;
constexpr double beta = 0.5;          // seconds per element
constexpr LinkCost link{alpha, 8.0};  // 4 bytes / 8 bytes per second
constexpr double rounding = 1e-12;    // relative, of sums of a few terms

// conv: 8x8x2 -> 8x8x32, k = 3: |W| = 576, d = 2048, e = 128. fc: 512 -> 64 behind a pooling.
Model small_model() {
  return {.name = "small",
          .input = {1, 8, 8, 2},
          .classes = 64,
          .layers = {{"conv", ConvolutionLayer{.filters = 32}, {0}},
                     {"pool", PoolingLayer{}, {1}},
                     {"fc", FullyConnectedLayer{.outputs = 64}, {2}}}};
}
constexpr double conv_weights = 576.0;
constexpr double conv_outputs = 2048.0;
constexpr double fc_weights = 512.0 * 64.0;
constexpr double fc_outputs = 64.0;
constexpr double fc_inputs = 512.0;

PlanOptions job(int ranks, std::int64_t batch) {
  return {.ranks = ranks, .batch = batch, .fabric = link, .node = link};
}

GridPlan planned(const Model& model, Strategy strategy, int pr, const PlanOptions& options) {
  for (GridPlan& grid : plan(model, strategy, options)) {
    if (grid.pr == pr) return grid;
  }
  throw std::out_of_range("no grid with so many rows");
}

double seconds(Strategy strategy, int pr, const PlanOptions& options) {
  return planned(small_model(), strategy, pr, options).communication_seconds;
}

void expect_near(double value, double expected) {
  EXPECT_NEAR(value, expected, rounding * std::abs(expected));
}

/// Messages one after the other, and the elements that they bring.
double messages(double count, double elements) { return alpha * count + beta * elements; }

PlanOptions in_bf16(PlanOptions options) {
  options.type = tensor::DataType::bf16;
  return options;
}

PlanOptions gradients_in_bf16(PlanOptions options) {
  options.gradient_type = tensor::DataType::bf16;
  return options;
}

PlanOptions on_nodes(int ranks_per_node, LinkCost node) {
  PlanOptions options = job(8, 16);
  options.ranks_per_node = ranks_per_node;
  options.node = node;
  return options;
}

// Gathered arrays and halos are halved in bf16, sums over ranks are not. By domain the first layer
// sends no halo of dy, and the fully connected one none at all, alpha included.
TEST(PlanTest, CommunicatesAsTheClosedFormsSay) {
  struct Case {
    Strategy strategy;
    int pr;
    PlanOptions options;
    double seconds;
  };
  const double all_weights = conv_weights + fc_weights;
  const double by_model = messages(4, 12 * (conv_outputs + fc_outputs));
  const double dx = 2 * messages(2, 12 * fc_inputs);
  const double samples = 16.0 / 3;  // 3 does not divide 16, and takes two rounds: P = 6 as 2 x 3
  const double on_grid = messages(2, samples / 2 * (conv_outputs + fc_outputs)) +
                         2 * messages(1, samples / 2 * fc_inputs) +
                         2 * messages(4, all_weights / 2 * 2 / 3);
  const double by_domain = 2 * messages(2, all_weights / 2);
  const auto integrated = [](double batch) {  // of the fully connected layer, on 2 x 2
    return messages(1, batch / 4 * fc_outputs) + 2 * messages(1, batch / 4 * fc_inputs) +
           2 * messages(1, fc_weights / 4);
  };
  const double convolution = 2 * messages(2, conv_weights * 3 / 4);
  const double in_nodes = 2 * (2 * 0.25 + 4.0 / 64.0 * all_weights / 2);
  const Case cases[] = {
      {Strategy::batch, 1, job(4, 16), 2 * messages(4, all_weights * 3 / 4)},
      {Strategy::model, 4, job(4, 16), by_model + dx},
      {Strategy::grid, 2, job(6, 16), on_grid},
      {Strategy::model, 4, in_bf16(job(4, 16)), messages(4, 6 * (conv_outputs + fc_outputs)) + dx},
      {Strategy::domain, 2, job(2, 16), messages(1, 16 * 8 * 2) + by_domain},
      {Strategy::domain, 2, in_bf16(job(2, 16)), messages(1, 8 * 8 * 2) + by_domain},
      {Strategy::batch, 1, gradients_in_bf16(job(4, 16)), 2 * messages(4, all_weights * 3 / 8)},
      {Strategy::model, 4, gradients_in_bf16(job(4, 16)), by_model + dx},
      // Convolutions by batch while there are samples, and by domain beyond.
      {Strategy::integrated, 2, job(4, 16), convolution + integrated(16)},
      {Strategy::integrated, 2, job(4, 2), messages(1, 8 * 2) + convolution + integrated(2)},
      // Two levels: 2 ranks on each of 4 nodes; rows of a grid stay on a node.
      {Strategy::batch, 1, on_nodes(2, {.alpha_seconds = 0.25, .bandwidth = 64.0}),
       in_nodes + 2 * messages(4, all_weights / 2 * 3 / 4)},
      {Strategy::grid, 4, on_nodes(4, {.alpha_seconds = 0.0, .bandwidth = 1e30}),
       2 * messages(2, all_weights / 4 / 2)},
  };
  for (const auto& [strategy, pr, options, expected] : cases) {
    SCOPED_TRACE(std::string(name_of(strategy)) + " " + std::to_string(options.batch));
    expect_near(seconds(strategy, pr, options), expected);
  }
}

// Convolutions in groups have no split by channel: every strategy leaves them split by samples.
TEST(PlanTest, TakesModelsWithConvolutionsInGroups) {
  const Model model = make_model("mobilenet_v2");
  for (const Strategy strategy : {Strategy::batch, Strategy::model, Strategy::grid}) {
    for (const GridPlan& grid : plan(model, strategy, job(4, 8)))
      EXPECT_GT(grid.bytes_per_rank, 0U);
  }
}

TEST(PlanTest, SendsHalosOfGradientsBehindTheFirstLayer) {
  Model model = small_model();
  model.layers.insert(model.layers.begin() + 1, {"conv2", ConvolutionLayer{.filters = 4}, {1}});
  model.layers[2].inputs = {2};
  model.layers[3].inputs = {3};

  const GridPlan grid = plan(model, Strategy::domain, job(2, 16)).front();

  const double x = alpha + beta * 16 * 8 * 32;
  const double dy = alpha + beta * 16 * 8 * 4;
  const double weights = 2 * (alpha + beta / 2 * 9 * 32 * 4);
  expect_near(grid.layers[1].communication_seconds, x + dy + weights);
}

TEST(PlanTest, SendsNoHaloForKernelsOfOnePixel) {
  Model model = small_model();
  model.layers[0].kind = ConvolutionLayer{.filters = 32, .kernel = 1, .padding = 0};
  const GridPlan grid = plan(model, Strategy::domain, job(2, 16)).front();
  expect_near(grid.layers[0].communication_seconds, 2 * (alpha + beta / 2 * 2 * 32));
}

TEST(PlanTest, CostsNothingOnOneRank) {
  for (const Strategy strategy :
       {Strategy::batch, Strategy::model, Strategy::grid, Strategy::domain, Strategy::integrated}) {
    EXPECT_EQ(seconds(strategy, 1, job(1, 16)), 0.0) << name_of(strategy);
  }
}

TEST(PlanTest, ListsTheGridsThatGiveEveryColumnASample) {
  std::vector<int> rows;
  for (const GridPlan& grid : plan(small_model(), Strategy::grid, job(12, 4))) {
    EXPECT_EQ(grid.pr * grid.pc, 12);
    rows.push_back(grid.pr);
  }
  EXPECT_THAT(rows, ElementsAre(3, 4, 6, 12));
}

// conv: 576 weights at 64 positions, and no gradient of its input; fc: 32,768 weights.
TEST(PlanTest, PredictsComputeTimeFromAFlopRateAlone) {
  PlanOptions options = job(4, 16);
  EXPECT_FALSE(planned(small_model(), Strategy::batch, 1, options).compute_seconds);
  options.flops = 1000.0;
  const GridPlan grid = planned(small_model(), Strategy::batch, 1, options);
  expect_near(grid.compute_seconds.value_or(0.0),
              16.0 / 4 * (4.0 * 576 * 64 + 6.0 * fc_weights) / 1000.0);
  expect_near(grid.seconds(), grid.communication_seconds + *grid.compute_seconds);
}

TEST(PlanTest, SplitLayersTakeLessMemory) {
  const auto bytes = [&](Strategy strategy, int pr) {
    return planned(small_model(), strategy, pr, job(4, 16)).bytes_per_rank;
  };
  EXPECT_LT(bytes(Strategy::grid, 2), bytes(Strategy::batch, 1));
  EXPECT_LT(bytes(Strategy::integrated, 2), bytes(Strategy::batch, 1));
  EXPECT_LT(bytes(Strategy::integrated, 4), bytes(Strategy::integrated, 2));
}

TEST(PlanTest, RefusesWhatCannotRun) {
  const auto in_pieces = [](PlanOptions options, int pieces) {
    options.micro_batches = pieces;
    return options;
  };
  PlanOptions whole = job(4, 16);
  whole.whole_layers = true;
  PlanOptions limited = job(4, 16);
  limited.memory_limit = 1000;
  struct Case {
    Strategy strategy;
    int pr;
    PlanOptions options;
    std::string words;  // empty: it can run
  };
  const Case cases[] = {
      {Strategy::grid, 2, job(4, 16), ""},
      {Strategy::grid, 4, job(4, 16), "conv: 32 filters over 4 ranks leave 8 each, fewer than 16"},
      {Strategy::domain, 8, job(8, 16), ""},
      {Strategy::domain, 16, job(16, 16), "conv: 8 rows over 16 ranks"},
      {Strategy::batch, 1, job(4, 2), "a batch of 2 leaves some of 4 columns without a sample"},
      {Strategy::batch, 1, in_pieces(job(8, 16), 2), ""},
      {Strategy::batch, 1, in_pieces(job(8, 16), 3),
       "3 micro-batches are more than the 2 samples that a replica has of a step"},
      // Convolutions are split by samples over all ranks, up to as many as there are samples.
      {Strategy::integrated, 2, in_pieces(job(4, 16), 4), ""},
      {Strategy::integrated, 2, in_pieces(job(4, 16), 5),
       "5 micro-batches are more than the 4 samples of a rank"},
      {Strategy::batch, 1, whole, ""},
      {Strategy::grid, 2, whole, "its update needs the whole layer on every rank"},
      {Strategy::batch, 1, limited, "more than the 1000 allowed"},
  };
  for (const auto& [strategy, pr, options, words] : cases) {
    const std::string refused = planned(small_model(), strategy, pr, options).refused;
    EXPECT_THAT(refused, HasSubstr(words)) << name_of(strategy);
    EXPECT_EQ(refused.empty(), words.empty()) << refused;
  }
}

TEST(PlanTest, RanksUsableGridsFirstAndFastOnesBeforeSlow) {
  std::vector<GridPlan> plans = {{.pr = 1, .communication_seconds = 1.0, .refused = "no"},
                                 {.pr = 2, .communication_seconds = 3.0},
                                 {.pr = 3, .communication_seconds = 1.0, .compute_seconds = 1.0}};
  rank(plans);
  EXPECT_EQ(plans[0].pr, 3);
  EXPECT_EQ(plans[1].pr, 2);
  EXPECT_EQ(plans[2].pr, 1);
}

TEST(PlanTest, RefusesOptionsThatMakeNoSense) {
  PlanOptions uneven = job(6, 16);
  uneven.ranks_per_node = 4;
  PlanOptions without_bandwidth = job(6, 16);
  without_bandwidth.fabric.bandwidth = 0.0;
  const std::pair<PlanOptions, std::string> cases[] = {{job(0, 16), "one rank"},
                                                       {job(1, 0), "one sample"},
                                                       {uneven, "multiple"},
                                                       {without_bandwidth, "bandwidth"}};
  for (const auto& [options, words] : cases) {
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&, planned = options] { (void)plan(small_model(), Strategy::grid, planned); }),
                HasSubstr(words));
  }
}

// The results of Gholami et al. (SPAA 2018) for the AlexNet of 2012 with alpha = 2 us, 6 GB/s, fp32
// and B = 2048: the closed forms say the same.

constexpr std::int64_t published_batch = 2048;
constexpr std::size_t convolutions = 5;

PlanOptions published(int ranks, std::int64_t batch = published_batch) {
  return {.ranks = ranks,
          .batch = batch,
          .fabric = {.alpha_seconds = 2e-6, .bandwidth = 6e9},
          .node = {.alpha_seconds = 2e-6, .bandwidth = 6e9}};
}

std::vector<GridPlan> plans(Strategy strategy, const PlanOptions& options) {
  static const Model model = make_model("alexnet-2012");
  return plan(model, strategy, options);
}

GridPlan fastest(const std::vector<GridPlan>& plans) {
  return *std::ranges::min_element(plans, {}, &GridPlan::communication_seconds);
}

GridPlan fastest_usable(std::vector<GridPlan> plans) {
  rank(plans);
  return plans.front();
}

// P_r that each layer would choose alone.
std::vector<int> chosen_alone(const PlanOptions& options) {
  const std::vector<GridPlan> grids = plans(Strategy::grid, options);
  std::vector<int> rows;
  for (const LayerPlan& layer : grids.front().layers) {
    rows.push_back(layer.cheapest_pr);
  }
  return rows;
}

std::vector<int> first_of(std::vector<int> rows, std::size_t count) {
  rows.resize(count);
  return rows;
}

TEST(PlanAlexnetTest, TheBestSingleGridIsBatchOnFewRanksAndLiesInsideOnMany) {
  for (const int ranks : {8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
    SCOPED_TRACE(ranks);
    const GridPlan best = fastest(plans(Strategy::grid, published(ranks)));
    const GridPlan usable = fastest_usable(plans(Strategy::grid, published(ranks)));
    EXPECT_EQ(best.pr > 1, ranks >= 64);
    EXPECT_LT(best.pr, ranks);
    if (ranks < 64) continue;
    EXPECT_GT(usable.pr, 1);
    EXPECT_EQ(usable.refused, "");
  }
}

// conv3 is the first to leave: |W| / (d + 2 e) = 884,736 / (64,896 + 2 * 43,264) = 5.8.
TEST(PlanAlexnetTest, LateConvolutionsLeaveBatchWhenFewSamplesAreLeft) {
  for (const int ranks : {8, 16, 32, 64, 128, 256}) {
    EXPECT_THAT(first_of(chosen_alone(published(ranks)), convolutions), testing::Each(1)) << ranks;
  }
  for (const int ranks : {512, 1024}) {
    EXPECT_THAT(first_of(chosen_alone(published(ranks)), convolutions), ElementsAre(1, 1, 2, 2, 2));
  }
}

TEST(PlanAlexnetTest, FullyConnectedLayersLeaveBatchAtOnce) {
  const std::vector<int> rows = chosen_alone(published(8));
  EXPECT_GT(rows[convolutions], 1);
  EXPECT_GT(rows[convolutions + 1], 1);
}

TEST(PlanAlexnetTest, ConvolutionsByBatchBeatTheSingleGrid) {
  for (const int ranks : {8, 64, 512, 2048}) {
    EXPECT_LT(fastest(plans(Strategy::integrated, published(ranks))).communication_seconds,
              fastest(plans(Strategy::grid, published(ranks))).communication_seconds)
        << ranks;
  }
}

TEST(PlanAlexnetTest, DomainsHelpBeyondTheBatch) {
  const PlanOptions options = published(4096);
  const std::vector<GridPlan> grids = plans(Strategy::grid, options);
  const std::vector<GridPlan> integrated = plans(Strategy::integrated, options);
  EXPECT_LT(fastest(integrated).communication_seconds, fastest(grids).communication_seconds);
  EXPECT_LT(fastest_usable(integrated).communication_seconds,
            fastest_usable(grids).communication_seconds);
  EXPECT_TRUE(fastest_usable(integrated).layers.front().domain);
}

// Halos are cheap, but domain reduces whole weights over all ranks: on one and the same grid it
// pays from P_r = 16 on, where the grid's activations cost more than its weights.
TEST(PlanAlexnetTest, DomainsHelpOnTheSameGridFrom16Rows) {
  const std::vector<GridPlan> grids = plans(Strategy::grid, published(4096));
  const std::vector<GridPlan> integrated = plans(Strategy::integrated, published(4096));
  for (std::size_t i = 0; i < grids.size(); ++i) {
    const bool cheaper = integrated[i].communication_seconds < grids[i].communication_seconds;
    EXPECT_EQ(cheaper, grids[i].pr >= 16) << grids[i].pr;
  }
}

// What is counted for an optimizer is what it keeps.

constexpr std::size_t parameters = 10;

int elements_kept(const std::unique_ptr<sync::Optimizer>& optimizer) {
  return static_cast<int>(optimizer->state().size() / parameters);
}

int elements_planned(const Experiment::Optimizer& optimizer) {
  Experiment experiment;
  experiment.optimizer = optimizer;
  return plan_options(experiment, small_model()).optimizer_elements;
}

TEST(OptimizerWordsTest, AreThoseThatTheOptimizerKeeps) {
  EXPECT_EQ(elements_planned({.name = OptimizerName::sgd}),
            elements_kept(sync::make_sgd(parameters, {})));
  EXPECT_EQ(elements_planned({.name = OptimizerName::sgd, .momentum = 0.0}),
            elements_kept(sync::make_sgd(parameters, {.momentum = 0.0F})));
  EXPECT_EQ(elements_planned({.name = OptimizerName::lars}),
            elements_kept(sync::make_lars(parameters, {})));
  EXPECT_EQ(elements_planned({.name = OptimizerName::adam}),
            elements_kept(sync::make_adam(parameters)));
  EXPECT_EQ(elements_planned({.name = OptimizerName::adamw}),
            elements_kept(sync::make_adamw(parameters)));
}

}  // namespace
}  // namespace rondo::train::plan_test
