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
    return exchanges_of(grid, layer_of(grid, 1), {.kind = SplitKind::sample}).seconds();
  };
  const auto ring = [](double words) { return 2 * (alpha + beta * words / 2); };
  const double once = ring(2 * (2 * 3 + 1)) + ring(2 * 2 * 3);

  EXPECT_NEAR(exchanged(BatchNormScope::replica), once, rounding * once);
  EXPECT_NEAR(exchanged(BatchNormScope::all), 2 * once, rounding * once);
}

PlanOptions by(const std::string& paths, PlanOptions options) {
  options.paths = transport::AllreducePaths(paths);
  return options;
}

PlanOptions on_nodes(int ranks_per_node, PlanOptions options) {
  options.ranks_per_node = ranks_per_node;
  return options;
}

// All ranks of a node share its port, and nothing within it takes time.
PlanOptions with_port(PlanOptions options) {
  options.node = {.alpha_seconds = 0.0, .bandwidth = 1e300};
  options.port_bandwidth = options.fabric.bandwidth;
  return options;
}

ProcessGroup all_of(const PlanOptions& options) { return {.size = options.ranks, .stride = 1}; }

TEST(AllreduceCostTest, MessagesTakeTheTimeOfTheirBytes) {
  struct Case {
    PlanOptions options;
    double elements;
    double seconds;
  };
  const auto doubling = [](double n) { return alpha + 1.25 * beta * n; };
  const auto ring = [](double n) { return 2 * (alpha + beta * n / 2); };
  // 7/8 of the bytes are sent and added, and as many are sent back.
  const auto halving = [](double n) { return 6 * alpha + beta * n * 0.875 * 2.25; };
  const PlanOptions nodes = by("ring:0-max", on_nodes(4, job(8)));
  constexpr double large = 1 << 22;
  const double inside = 2 * alpha + beta * large * (0.625 + 1.0);
  const double between = 2 * (alpha + beta * large / 4 / 2);
  ASSERT_LT(between, inside);
  const double long_message = beta * 1e6 / 4 / 2;
  const double short_message = beta * 8 / 4 / 2;
  ASSERT_GT(3 * long_message, alpha);
  ASSERT_LT(3 * short_message, alpha);
  PlanOptions flat = by("flat-ring:0-max", on_nodes(2, job(4)));
  flat.node = {.alpha_seconds = 100 * alpha, .bandwidth = 1.0};
  const Case cases[] = {
      // The table decides, and not the links: 16,384 elements of fp32 are 64 KiB, where two ranks
      // change to a ring; 256 KiB between eight ranks go by halving.
      {job(2), 16'383, doubling(16'383)},
      {job(2), 16'384, ring(16'384)},
      {by("ring:0-1m;rd:1m-max", job(2)), 16'383, ring(16'383)},
      {job(8), 65'536, halving(65'536)},
      {by("rh:0-max", job(8)), 65'536, halving(65'536)},
      // One of five ranks folds, so all of its bytes are sent to another, and the sums back.
      {by("rh:0-max", job(5)), 1000, 4 * alpha + beta * 1000 * 0.75 * 2.25 + 2 * doubling(1000)},
      // Each of four ranks of a node exchanges a quarter.
      {with_port(by("rh:0-max", on_nodes(4, job(32)))), 1000, halving(1000)},
      // On a node ranks copy a share of all inputs, into all outputs.
      {on_nodes(2, job(2)), 1000, 2 * alpha + beta * 1000},
      {on_nodes(4, job(4)), 1000, 2 * alpha + beta * 1000},
      {on_nodes(8, job(8)), 1000, 2 * alpha + beta * 1000},
      // 16 MiB over two nodes of four ranks are four blocks: what is shorter hides behind the rest,
      // but for a quarter of it.
      {nodes, large, inside + between / 4},
      // While a rank waits for the latency of its message, the other three of its node send.
      {with_port(nodes), 1e6, 2 * 4 * long_message},
      {with_port(nodes), 8, 2 * (alpha + short_message)},
      // Flat, all four send to each other over the fabric.
      {flat, 1000, 2 * (3 * alpha + beta * 1000 * 3 / 4)},
  };
  for (const auto& [options, elements, seconds] : cases) {
    EXPECT_NEAR(allreduce_cost(elements, all_of(options), options).seconds, seconds,
                rounding * seconds)
        << elements << " elements on " << options.ranks << " ranks";
  }
}

// Doubling sends all elements in each round; halving and a ring send 7/8 of them twice. The fifth
// of five ranks sends all of them, and gets them back.
TEST(AllreduceCostTest, ThePortIsBusyWhileBytesAreSent) {
  struct Case {
    PlanOptions options;
    double times;
    double rounds;
  };
  const Case cases[] = {
      {by("ring:0-max", job(8)), 2 * 0.875, 14},
      {by("rd:0-max", job(8)), 3, 3},
      {by("rh:0-max", job(8)), 2 * 0.875, 6},
      {by("rh:0-max", job(5)), 2 * 0.75 + 2, 6},
      {on_nodes(8, job(8)), 0, 0},
  };
  for (const auto& [options, times, rounds] : cases) {
    const MessageCost cost = allreduce_cost(1000, all_of(options), options);
    EXPECT_DOUBLE_EQ(cost.busy, times * beta * 1000);
    EXPECT_EQ(cost.rounds, rounds);
  }
}

TEST(AllreduceCostTest, OnANodeAReduceScatterLoadsAllAndStoresAShare) {
  const PlanOptions options = on_nodes(4, job(4));
  const double gathered = alpha + beta * 1000 * 3 / 4;
  const double scattered = alpha + beta * 1000 * 5 / 8;
  EXPECT_NEAR(gathering_cost(1000, {.size = 4}, options).seconds, gathered, rounding * gathered);
  EXPECT_NEAR(scattering_cost(1000, {.size = 4}, options).seconds, scattered, rounding * scattered);
}

}  // namespace
}  // namespace rondo::train::allreduce_cost_test
