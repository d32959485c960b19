// The planner's cost of an allreduce: the way that a run would take, and who takes part.

#include <gtest/gtest.h>

#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/transport/allreduce_paths.hpp>

#include "plan/closed_forms.hpp"
#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"

namespace rondo::train::allreduce_cost_test {
namespace {

constexpr double alpha = 0.5;
constexpr double beta = 0.125;  // seconds per element
constexpr double bandwidth = element_bytes / beta;
constexpr double rounding = 1e-12;

PlanOptions job(int ranks) {
  const LinkCost link{.alpha_seconds = alpha, .bandwidth = bandwidth};
  return {.ranks = ranks, .batch = 4, .fabric = link, .node = link};
}

// The executor adds up within the replica, then over the replicas: two rings of two ranks.
TEST(AllreduceCostTest, SharedStatisticsOfAllGoThroughTheReplicaFirst) {
  const Model model = {.name = "normed",
                       .input = {1, 2, 2, 3},
                       .classes = 3,
                       .layers = {{"conv", ConvolutionLayer{.filters = 3}, {0}},
                                  {"bn", BatchNormLayer{}, {1}},
                                  {"mean", GlobalAveragePoolingLayer{}, {2}}}};
  PlanOptions options = job(4);
  options.paths = transport::AllreducePaths("ring:0-max");
  const auto exchanged = [&](BatchNormScope scope) {
    options.batch_norm = scope;
    const GridJob grid{.model = model,
                       .options = options,
                       .grid = {.pr = 2, .pc = 2},
                       .shapes = shapes_of(model, 4)};
    return exchange_seconds(grid, layer_of(grid, 1), {.kind = SplitKind::sample}).total();
  };
  const auto ring = [](double words) { return 2 * (alpha + beta * words / 2); };
  const double once = ring(2 * (2 * 3 + 1)) + ring(2 * 2 * 3);

  EXPECT_NEAR(exchanged(BatchNormScope::replica), once, rounding * once);
  EXPECT_NEAR(exchanged(BatchNormScope::all), 2 * once, rounding * once);
}

// The table decides, and not the links: 16,384 elements of fp32 are 64 KiB, where two ranks change
// to a ring.
TEST(AllreduceCostTest, TheTableOfARunChoosesBetweenDoublingAndRings) {
  PlanOptions options = job(2);
  const ProcessGroup two{.size = 2, .stride = 1};
  const auto doubling = [](double n) { return alpha + 1.25 * beta * n; };
  const auto ring = [](double n) { return 2 * (alpha + beta * n / 2); };

  EXPECT_NEAR(allreduce_seconds(16'383, two, options), doubling(16'383), rounding * 16'383);
  EXPECT_NEAR(allreduce_seconds(16'384, two, options), ring(16'384), rounding * 16'384);
  options.paths = transport::AllreducePaths("ring:0-1m;rd:1m-max");
  EXPECT_NEAR(allreduce_seconds(16'383, two, options), ring(16'383), rounding * 16'383);
}

// 7/8 of the bytes are sent and added, and as many are sent back: 256 KiB between eight ranks go
// this way by default.
TEST(AllreduceCostTest, HalvingSendsEachByteTwiceAndAddsItOnce) {
  PlanOptions options = job(8);
  const double halving = 6 * alpha + beta * 65'536 * 0.875 * 2.25;
  EXPECT_NEAR(allreduce_seconds(65'536, {.size = 8}, options), halving, rounding * halving);
  EXPECT_DOUBLE_EQ(with_adding(65'536, {.size = 8}, options), 1.125);
  options.paths = transport::AllreducePaths("rh:0-max");
  EXPECT_NEAR(allreduce_seconds(65'536, {.size = 8}, options), halving, rounding * halving);
}

// Five ranks: one folds, so all of its bytes are sent to another, and the sums back.
TEST(AllreduceCostTest, RanksThatFoldAddTwoMessagesOfAllBytes) {
  PlanOptions options = job(5);
  options.paths = transport::AllreducePaths("rh:0-max");
  const double halving = 4 * alpha + beta * 1000 * 0.75 * 2.25;
  const double folding = 2 * (alpha + 1.25 * beta * 1000);
  EXPECT_NEAR(allreduce_seconds(1000, {.size = 5}, options), halving + folding,
              rounding * (halving + folding));
  EXPECT_DOUBLE_EQ(with_adding(1000, {.size = 5}, options), 1.0 + 0.25 * 2.75 / 3.5);
}

// Each of four ranks of a node exchanges a quarter, and all share the port.
TEST(AllreduceCostTest, AllRanksOfANodeHalve) {
  PlanOptions options = job(32);
  options.ranks_per_node = 4;
  options.node = {.alpha_seconds = 0.0, .bandwidth = 1e300};
  options.port_bandwidth = options.fabric.bandwidth;
  options.paths = transport::AllreducePaths("rh:0-max");
  const double halving = 6 * alpha + beta * 1000 * 0.875 * 2.25;
  EXPECT_NEAR(allreduce_seconds(1000, {.size = 32}, options), halving, rounding * halving);
}

// What is added while nothing is sent is counted for what goes by doubling or halving alone.
TEST(AllreduceCostTest, ARingAddsWhileItSends) {
  PlanOptions options = job(8);
  options.paths = transport::AllreducePaths("ring:0-max");
  EXPECT_DOUBLE_EQ(with_adding(1000, {.size = 8}, options), 1.0);
  options.paths = transport::AllreducePaths("rd:0-max");
  EXPECT_DOUBLE_EQ(with_adding(1000, {.size = 8}, options), 1.25);
}

// Two, four and eight ranks of a node copy as much: a share of all inputs, into all outputs.
TEST(AllreduceCostTest, OnANodeEachRankCopiesTheArrayOnce) {
  for (const int ranks : {2, 4, 8}) {
    PlanOptions options = job(ranks);
    options.ranks_per_node = ranks;
    const double once = 2 * alpha + beta * 1000;
    EXPECT_NEAR(allreduce_seconds(1000, {.size = ranks}, options), once, rounding * once);
  }
}

TEST(AllreduceCostTest, OnANodeAReduceScatterLoadsAllAndStoresAShare) {
  PlanOptions options = job(4);
  options.ranks_per_node = 4;
  const double gathered = alpha + beta * 1000 * 3 / 4;
  const double scattered = alpha + beta * 1000 * 5 / 8;
  EXPECT_NEAR(gathering_seconds(1000, {.size = 4}, options), gathered, rounding * gathered);
  EXPECT_NEAR(scattering_seconds(1000, {.size = 4}, options), scattered, rounding * scattered);
}

// 16 MiB over two nodes of four ranks are four blocks: what is shorter hides behind the rest, but
// for a quarter of it.
TEST(AllreduceCostTest, BlocksOverlapOnANodeAndBetweenNodes) {
  PlanOptions options = job(8);
  options.ranks_per_node = 4;
  options.paths = transport::AllreducePaths("ring:0-max");
  constexpr double elements = 1 << 22;
  const double inside = 2 * alpha + beta * elements * (0.625 + 1.0);
  const double between = 2 * (alpha + beta * elements / 4 / 2);
  ASSERT_LT(between, inside);
  const double all = inside + between / 4;
  EXPECT_NEAR(allreduce_seconds(elements, {.size = 8}, options), all, rounding * all);
}

// While a rank waits for the latency of its message, the other three of its node send.
TEST(AllreduceCostTest, LatenciesHideBehindASharedPort) {
  PlanOptions options = job(8);
  options.ranks_per_node = 4;
  options.node = {.alpha_seconds = 0.0, .bandwidth = 1e300};
  options.port_bandwidth = options.fabric.bandwidth;
  options.paths = transport::AllreducePaths("ring:0-max");
  const double long_message = beta * 1e6 / 4 / 2;
  ASSERT_GT(3 * long_message, alpha);
  EXPECT_NEAR(allreduce_seconds(1e6, {.size = 8}, options), 2 * 4 * long_message,
              rounding * 8 * long_message);
  const double short_message = beta * 8 / 4 / 2;
  ASSERT_LT(3 * short_message, alpha);
  EXPECT_NEAR(allreduce_seconds(8, {.size = 8}, options), 2 * (alpha + short_message),
              rounding * 2 * alpha);
}

// Two nodes of two ranks; flat, all four send to each other over the fabric.
TEST(AllreduceCostTest, AFlatTableLeavesOutTheNode) {
  PlanOptions options = job(4);
  options.node = {.alpha_seconds = 100 * alpha, .bandwidth = 1.0};
  options.ranks_per_node = 2;
  options.paths = transport::AllreducePaths("flat-ring:0-max");
  const double ring = 2 * (3 * alpha + beta * 1000 * 3 / 4);
  EXPECT_NEAR(allreduce_seconds(1000, {.size = 4, .stride = 1}, options), ring, rounding * ring);
}

}  // namespace
}  // namespace rondo::train::allreduce_cost_test
