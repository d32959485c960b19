// What Gholami et al. (SPAA 2018) found for the AlexNet of 2012 with alpha = 2 us, 6 GB/s, fp32 and
// B = 2048: the closed forms say the same.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/plan.hpp>

namespace rondo::train::plan_alexnet_test {
namespace {

using testing::Each;
using testing::ElementsAre;

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

// 2 (9 alpha + beta 511/512 |W|) over eight layers of 62,367,776 weights in all.
TEST(PlanAlexnetTest, BatchMovesTwiceTheWeights) {
  const double expected = 2 * (8 * 9 * 2e-6 + 4 / 6e9 * 511 / 512 * 62'367'776.0);

  EXPECT_NEAR(plans(Strategy::batch, published(512)).front().communication_seconds, expected,
              1e-12);
}

TEST(PlanAlexnetTest, TheBestSingleGridLiesInsideAtLargeP) {
  for (const int ranks : {64, 128, 256, 512, 1024, 2048}) {
    const GridPlan best = fastest(plans(Strategy::grid, published(ranks)));
    const GridPlan usable = fastest_usable(plans(Strategy::grid, published(ranks)));

    EXPECT_GT(best.pr, 1) << ranks;
    EXPECT_LT(best.pr, ranks) << ranks;
    EXPECT_GT(usable.pr, 1) << ranks;
    EXPECT_EQ(usable.refused, "") << ranks;
  }
}

TEST(PlanAlexnetTest, FewRanksStayWithBatch) {
  for (const int ranks : {8, 16, 32}) {
    EXPECT_EQ(fastest(plans(Strategy::grid, published(ranks))).pr, 1) << ranks;
  }
}

TEST(PlanAlexnetTest, AllConvolutionsStayWithBatchAloneUntilP256) {
  for (const int ranks : {8, 16, 32, 64, 128, 256}) {
    EXPECT_THAT(first_of(chosen_alone(published(ranks)), convolutions), Each(1)) << ranks;
  }
}

// conv3, the first to leave: |W| / (d + 2 e) = 884,736 / (64,896 + 2 * 43,264) = 5.8.
TEST(PlanAlexnetTest, LateConvolutionsLeaveBatchWhenFewSamplesAreLeft) {
  EXPECT_THAT(first_of(chosen_alone(published(512)), convolutions), ElementsAre(1, 1, 2, 2, 2));
  EXPECT_THAT(first_of(chosen_alone(published(1024)), convolutions), ElementsAre(1, 1, 2, 2, 2));
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

}  // namespace
}  // namespace rondo::train::plan_alexnet_test
