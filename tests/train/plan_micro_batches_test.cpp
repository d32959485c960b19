// The planner and train.accumulate: a step in several micro-batches, of which only the last hides
// reductions.

#include <cstdint>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>

namespace rondo::train::plan_micro_batches_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double alpha = 3.0;
constexpr double beta = 0.5;  // seconds per element
constexpr double rounding = 1e-12;

// What is short goes in rings, too, so that all allreduces have one form.
PlanOptions job(int ranks, std::int64_t batch) {
  constexpr LinkCost link{alpha, 8.0};
  return {.ranks = ranks,
          .batch = batch,
          .fabric = link,
          .node = link,
          .paths = transport::AllreducePaths("ring:0-max")};
}

// The best plan of the grids with replicas of `pr` ranks.
BestPlan plan_on(int pr, const Model& model, const PlanOptions& options, const FlopRate& costs) {
  for (const BestPlan& plan : best_plans(model, options, costs)) {
    if (plan.grid.pr == pr) return plan;
  }
  throw std::out_of_range("no such grid");
}

// By sample a pass is nothing but its kernels. Seven of eight stand in front of the step that one
// micro-batch makes, layer by layer and in buckets.
TEST(PlanBestTest, OnlyTheLastMicroBatchHidesReductions) {
  const Model model = {.name = "two",
                       .input = {1, 8, 8, 16},
                       .classes = 16,
                       .layers = {{"a", ConvolutionLayer{.filters = 16}, {0}},
                                  {"b", ConvolutionLayer{.filters = 16}, {1}},
                                  {"mean", GlobalAveragePoolingLayer{}, {2}}}};
  const FlopRate costs(1e4);
  for (const std::int64_t bucket_bytes : {0, 1, 1 << 30}) {
    PlanOptions options = job(4, 4);
    options.bucket_bytes = bucket_bytes;
    const BestPlan one = plan_on(1, model, options, costs);
    options.batch = 8 * 4;
    options.micro_batches = 8;

    const BestPlan plan = plan_on(1, model, options, costs);

    const double step = 7 * one.compute_seconds + one.overlapped_seconds;
    EXPECT_NEAR(plan.overlapped_seconds, step, rounding * step) << bucket_bytes;
    EXPECT_NEAR(plan.compute_seconds, 8 * one.compute_seconds, rounding * step);
    EXPECT_EQ(plan.reduction_seconds, one.reduction_seconds);
  }
}

// By outputs each pass has the messages of its exchanges, with their latency: two that gather, and
// two that add up the gradient of the second layer's input.
TEST(PlanBestTest, EveryMicroBatchExchanges) {
  const Model model = {.name = "two",
                       .input = {1, 1, 1, 64},
                       .classes = 64,
                       .layers = {{"a", FullyConnectedLayer{.outputs = 64}, {0}},
                                  {"b", FullyConnectedLayer{.outputs = 64}, {1}}}};
  const double pass = 4 * (alpha + beta * 32);
  for (const std::int64_t bucket_bytes : {0, 1}) {
    PlanOptions options = job(4, 2);
    options.bucket_bytes = bucket_bytes;
    const BestPlan one = plan_on(2, model, options, FlopRate(infinity));
    options.batch = 3 * 2;
    options.micro_batches = 3;

    const BestPlan plan = plan_on(2, model, options, FlopRate(infinity));

    ASSERT_EQ(plan.layers[1].split.kind, SplitKind::channel);
    ASSERT_EQ(plan.layers[1].split, one.layers[1].split);
    EXPECT_NEAR(one.exchange_seconds, pass, rounding * pass);
    EXPECT_NEAR(plan.exchange_seconds, 3 * pass, rounding * pass);
    const double step = 2 * pass + one.overlapped_seconds;
    EXPECT_NEAR(plan.overlapped_seconds, step, rounding * step) << bucket_bytes;
  }
}

}  // namespace
}  // namespace rondo::train::plan_micro_batches_test
