// What an allreduce costs by the planner: the way that a run would take, and who takes part.

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
