// The cost of a split of one layer, worked out by hand, and the split that the search must find
// when only one thing matters. plan_search_test shows that it finds the best of all splits.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>

#include "support/error_text.hpp"

namespace rondo::train::plan_best_test {
namespace {

using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double alpha = 0.25;
constexpr double beta = 0.5;  // seconds per element
constexpr LinkCost link{alpha, 8.0};
constexpr double rounding = 1e-12;

// What is short goes in rings, too, so that all allreduces have one form.
PlanOptions job(int ranks, std::int64_t batch, LinkCost cost = link) {
  return {.ranks = ranks,
          .batch = batch,
          .fabric = cost,
          .node = cost,
          .paths = transport::AllreducePaths("ring:0-max")};
}

ConvolutionLayer convolution(std::int64_t filters) { return {.filters = filters}; }

// Its second layer has an input whose gradient is needed.
Model two_convolutions(std::int64_t channels, std::int64_t filters, std::int64_t pixels = 8) {
  return {.name = "two",
          .input = {1, pixels, pixels, channels},
          .classes = filters,
          .layers = {{"a", convolution(channels), {0}},
                     {"b", convolution(filters), {1}},
                     {"mean", GlobalAveragePoolingLayer{}, {2}}}};
}

Model one_connected(std::int64_t inputs, std::int64_t outputs) {
  return {.name = "one",
          .input = {1, 1, 1, inputs},
          .classes = outputs,
          .layers = {{"fc", FullyConnectedLayer{.outputs = outputs}, {0}}}};
}

// A model without weights.
Model one_mean() {
  return {.name = "mean",
          .input = {1, 2, 2, 3},
          .classes = 3,
          .layers = {{"mean", GlobalAveragePoolingLayer{}, {0}}}};
}

std::vector<BestPlan> without_compute(const Model& model, const PlanOptions& options) {
  return best_plans(model, options, FlopRate(infinity));
}

// The best plan of the grids with replicas of `pr` ranks.
BestPlan plan_on(int pr, const Model& model, const PlanOptions& options,
                 const FlopRate& costs = FlopRate(infinity)) {
  for (const BestPlan& plan : best_plans(model, options, costs)) {
    if (plan.grid.pr == pr) return plan;
  }
  throw std::out_of_range("no such grid");
}

bool some_plan_has(SplitKind kind, const Model& model, const PlanOptions& options) {
  return std::ranges::any_of(best_plans(model, options, FlopRate(1e9)), [&](const BestPlan& plan) {
    return std::ranges::any_of(plan.splits,
                               [&](const LayerSplit& split) { return split.kind == kind; });
  });
}

// Under "lars" every rank needs the norms of whole layers.
TEST(PlanBestTest, CutsNoLayerWhereTheOptimizerNeedsItWhole) {
  PlanOptions options = job(4, 8);
  EXPECT_TRUE(some_plan_has(SplitKind::channel, one_connected(4096, 4096), options));
  options.whole_layers = true;
  EXPECT_FALSE(some_plan_has(SplitKind::channel, one_connected(4096, 4096), options));
}

// Ranks with other threads compute other bits, and sharded updates that clip need all parameters.
TEST(PlanBestTest, NoLayerIsComputedAlikeWhereThatIsNotAllowed) {
  PlanOptions options = job(4, 2);
  EXPECT_TRUE(some_plan_has(SplitKind::replica, one_connected(64, 4), options));
  options.replicas = false;
  EXPECT_FALSE(some_plan_has(SplitKind::replica, one_connected(64, 4), options));

  Experiment sharded;
  sharded.update.scheme = "sharded";
  sharded.optimizer.clip_norm = 1.0;
  options = plan_options(sharded, one_connected(64, 4));
  EXPECT_FALSE(options.replicas);
  EXPECT_TRUE(options.whole_layers);
}

TEST(PlanBestTest, OneRankComputesAndNothingElse) {
  const Model model = make_model("resnet20");
  const std::vector<BestPlan> plans = best_plans(model, job(1, 16), FlopRate(1e9));
  ASSERT_THAT(plans, SizeIs(1));
  EXPECT_EQ(plans[0].communication_seconds(), 0.0);
  EXPECT_GT(plans[0].compute_seconds, 0.0);
  EXPECT_THAT(plans[0].layers,
              testing::AllOf(SizeIs(22), Each(Field(&BestLayer::split,
                                                    LayerSplit{.kind = SplitKind::sample}))));
}

TEST(PlanBestTest, SplitsSamplesWhereWordsAreFree) {
  const PlanOptions options = job(8, 64, {.alpha_seconds = 0.0, .bandwidth = infinity});
  const std::vector<BestPlan> plans = best_plans(make_model("resnet20"), options, FlopRate(1e9));
  // Every split divides work evenly; the remainders of others are no less.
  const double alone =
      best_plans(make_model("resnet20"), job(1, 64), FlopRate(1e9))[0].compute_seconds;
  EXPECT_NEAR(plans[0].compute_seconds, alone / 8, rounding * alone);
  EXPECT_EQ(plans[0].communication_seconds(), 0.0);
  EXPECT_EQ(plans[0].grid.pr, 1);
}

// All ranks do everything, and none has anything to say.
TEST(PlanBestTest, RepeatsAllWorkWhereMessagesTakeForever) {
  const PlanOptions options = job(8, 64, {.alpha_seconds = 1e9, .bandwidth = 1e9});
  const std::vector<BestPlan> plans = best_plans(make_model("resnet20"), options, FlopRate(1e9));
  EXPECT_EQ(plans[0].grid.pr, 8);
  EXPECT_EQ(plans[0].communication_seconds(), 0.0);
  EXPECT_THAT(plans[0].layers, Each(Field(&BestLayer::split, LayerSplit{SplitKind::replica})));
}

// Weights 9 x 64 x 64 of each: splitting them saves the allreduce but for 1/4 over P_c = 1.
TEST(PlanBestTest, SplitsChannelsOfLateLayers) {
  const Model model = two_convolutions(64, 64, 2);
  const PlanOptions options = job(4, 4);
  const BestPlan plan = plan_on(4, model, options, FlopRate(1e3));
  EXPECT_EQ(plan.layers[1].split.kind, SplitKind::channel);
  EXPECT_EQ(plan.layers[1].reduction_seconds, 0.0);
}

// Backward of the first layer hides the reduction of the second one, which then costs nothing. No
// backward is left for that of the first.
TEST(PlanBestTest, SplitsSamplesWhereBackwardHidesTheReduction) {
  const BestPlan plan = plan_on(4, two_convolutions(64, 64, 2), job(4, 4), FlopRate(1.0));
  EXPECT_EQ(plan.layers[0].split.kind, SplitKind::channel);
  EXPECT_EQ(plan.layers[1].split.kind, SplitKind::sample);
  EXPECT_NEAR(plan.overlapped_seconds, plan.seconds() - plan.layers[1].reduction_seconds,
              rounding * plan.seconds());
}

// For the published network, 2 x 256 took 289.1 ms and was seventh, behind one of 293.4 ms.
TEST(PlanBestTest, GridsAreInTheOrderOfTheirSteps) {
  const PlanOptions options = job(512, 2048, {.alpha_seconds = 2e-6, .bandwidth = 6e9});
  const std::vector<BestPlan> plans =
      best_plans(make_model("alexnet-2012"), options, FlopRate(1e11));
  EXPECT_TRUE(std::ranges::is_sorted(plans, {}, [](const BestPlan& plan) {
    return std::pair(!plan.refused.empty(), plan.overlapped_seconds);
  }));
  EXPECT_LT(plans[0].overlapped_seconds, 0.2891);
}

// B = 1 leaves nothing to split by sample, and so few channels nothing by channel. Rows of 16
// pixels with 8 channels; corners are needed of 2 x 2 parts only. In bf16 halos are half as long,
// and sums as long. The second layer's halo of dy is hidden, where its gradients of weights take
// longer; the first layer's gradients are final at the end, and nothing hides their reduction.
TEST(PlanBestTest, CountsHalosAndHidesThatOfDy) {
  const double weights = 2 * (alpha + beta * 9 * 8 * 8 / 2);
  const double mean = 2 * (alpha + beta * 8 / 2);
  for (const tensor::DataType type : {tensor::DataType::f32, tensor::DataType::bf16}) {
    PlanOptions options = job(2, 1);
    options.type = type;
    const double element = type == tensor::DataType::bf16 ? beta / 2 : beta;
    const double halo = alpha + element * 16 * 8;

    const BestPlan plan = plan_on(2, two_convolutions(8, 8, 16), options, FlopRate(1.0));

    ASSERT_EQ(plan.layers[1].split.kind, SplitKind::space);
    EXPECT_NEAR(plan.layers[0].reduction_seconds, weights, rounding * weights);
    EXPECT_NEAR(plan.layers[1].reduction_seconds, weights, rounding * weights);
    EXPECT_NEAR(plan.layers[0].exchange_seconds, halo, rounding * halo);             // x
    EXPECT_NEAR(plan.layers[1].exchange_seconds, 2 * halo + mean, rounding * halo);  // x and dy
    EXPECT_NEAR(plan.overlapped_seconds, plan.seconds() - weights - halo,
                rounding * plan.seconds());
  }
}

// For one sample, x has 1.4 times as many elements as the weights. Halves of the image, in each of
// which two ranks split the filters, gather half of x, and each half of the weights is added up by
// two ranks. Filters alone gather three quarters of x; images alone add up all weights.
TEST(PlanBestTest, SplitsAConvolutionInSpaceAndByChannelWhereThatIsLess) {
  const Model model = {
      .name = "one",
      .input = {1, 32, 32, 80},
      .classes = 80,
      .layers = {{"conv", convolution(80), {0}}, {"mean", GlobalAveragePoolingLayer{}, {1}}}};

  const BestPlan plan = plan_on(4, model, job(4, 1), FlopRate(1e3));

  ASSERT_EQ(plan.layers[0].split.kind, SplitKind::space_and_channel);
  EXPECT_EQ(plan.layers[0].split.channels, (ChannelGrid{.channels = 1, .filters = 2}));
}
// 16 channels on four ranks: 2 x 16 + 1 sums in double in forward, 2 x 16 in backward.
TEST(PlanBestTest, CountsWhatSharedStatisticsExchange) {
  const Model model = {.name = "normed",
                       .input = {1, 2, 2, 16},
                       .classes = 16,
                       .layers = {{"conv", convolution(16), {0}},
                                  {"bn", BatchNormLayer{}, {1}},
                                  {"mean", GlobalAveragePoolingLayer{}, {2}}}};
  PlanOptions options = job(4, 4);
  const auto exchanged = [&](BatchNormScope scope, int pr) {
    options.batch_norm = scope;
    const BestPlan plan = plan_on(pr, model, options, FlopRate(1.0));
    EXPECT_EQ(plan.layers[0].split.kind, SplitKind::sample);
    return plan.exchange_seconds;
  };
  const auto ring = [](double words) { return 2 * (3 * alpha + beta * words * 3 / 4); };
  const double all = ring(2 * (2 * 16 + 1)) + ring(2 * 2 * 16);

  EXPECT_EQ(exchanged(BatchNormScope::rank, 1), 0.0);
  EXPECT_EQ(exchanged(BatchNormScope::replica, 1), 0.0);
  EXPECT_NEAR(exchanged(BatchNormScope::all, 1), all, rounding * all);
}

// As it will run: the pooling takes the input by sample, and what it writes is redistributed.
TEST(PlanBestTest, APoolingInFrontReadsSamples) {
  const Model model = {.name = "pooled",
                       .input = {1, 8, 8, 64},
                       .classes = 64,
                       .layers = {{"pool", PoolingLayer{}, {0}},
                                  {"conv", convolution(64), {1}},
                                  {"mean", GlobalAveragePoolingLayer{}, {2}}}};

  const BestPlan plan = plan_on(4, model, job(4, 4), FlopRate(1e3));

  ASSERT_EQ(plan.layers[0].split.kind, SplitKind::channel);
  const double there = 3 * alpha + beta * 3 * 4 * 4 * 16;  // a quarter of the other 3 samples
  EXPECT_GE(plan.layers[0].redistribution_seconds, 2 * there);
}

TEST(PlanBestTest, NeverLeavesFewChannels) {
  const PlanOptions options = job(4, 4, {.alpha_seconds = 0.0, .bandwidth = 1.0});
  const BestPlan plan = plan_on(4, two_convolutions(24, 24, 2), options, FlopRate(1.0));
  for (const BestLayer& layer : plan.layers) EXPECT_NE(layer.split.kind, SplitKind::channel);
}

TEST(PlanBestTest, ListsEveryGridThatGivesEveryGroupASample) {
  const std::vector<BestPlan> plans = without_compute(two_convolutions(32, 32), job(12, 4));
  EXPECT_THAT(plans, SizeIs(4));  // P_r = 3, 4, 6, 12
  for (const BestPlan& plan : plans) EXPECT_EQ(plan.grid.ranks(), 12);
}

// Where messages take long all ranks would rather hold all weights.
TEST(PlanBestTest, StaysBelowTheMemoryLimit) {
  const Model model = one_connected(1024, 1024);
  PlanOptions options = job(4, 4, {.alpha_seconds = 1.0, .bandwidth = 1e9});
  const BestPlan unlimited = best_plans(model, options, FlopRate(1e12))[0];

  options.memory_limit = unlimited.bytes_per_rank / 2;
  const BestPlan limited = best_plans(model, options, FlopRate(1e12))[0];

  ASSERT_EQ(limited.refused, "");
  EXPECT_EQ(unlimited.layers[0].split.kind, SplitKind::replica);
  EXPECT_EQ(limited.layers[0].split.kind, SplitKind::channel);
  EXPECT_LE(limited.bytes_per_rank, options.memory_limit);
  EXPECT_GT(limited.overlapped_seconds, unlimited.overlapped_seconds);
}

// The fastest lets both ranks do everything, and its gradients alone take all there is; half the
// columns of the image on each rank have half of them.
TEST(PlanBestTest, LooksForSmallerGradientsWhereTheFastestHaveNoRoom) {
  const Model model = {.name = "early",
                       .input = {1, 64, 64, 3},
                       .classes = 10,
                       .layers = {{"conv", convolution(16), {0}},
                                  {"mean", GlobalAveragePoolingLayer{}, {1}},
                                  {"fc", FullyConnectedLayer{.outputs = 10}, {2}}}};
  PlanOptions options = job(2, 1, {});
  const BestPlan fastest = best_plans(model, options, FlopRate(1e12))[0];
  ASSERT_EQ(fastest.layers[0].split.kind, SplitKind::replica);
  for (const std::uint64_t percent : {85U, 95U}) {
    const std::uint64_t limit = fastest.bytes_per_rank * percent / 100;
    options.memory_limit = limit;

    const BestPlan plan = best_plans(model, options, FlopRate(1e12))[0];

    EXPECT_EQ(plan.refused, "");
    EXPECT_LE(plan.bytes_per_rank, limit);
    EXPECT_EQ(plan.layers[0].split.kind, SplitKind::space);
  }
}

// 83,160 has 128 divisors: as many splits in space, about as many orders of channels.
TEST(PlanBestTest, RefusesGroupsWithTooManySplits) {
  const std::vector<BestPlan> plans = without_compute(one_connected(16, 16), job(83'160, 1));
  ASSERT_THAT(plans, SizeIs(1));
  EXPECT_THAT(plans[0].refused, HasSubstr("in more than 254 ways"));
}

// Less than an element is a limit, too.
TEST(PlanBestTest, RefusesWhatDoesNotFitHoweverItIsSplit) {
  PlanOptions options = job(4, 8);
  for (const std::uint64_t limit : {1000U, 3U}) {
    options.memory_limit = limit;
    for (const BestPlan& plan : without_compute(make_model("resnet20"), options)) {
      EXPECT_THAT(plan.refused, HasSubstr("fit into the " + std::to_string(limit) + " bytes"));
    }
  }
}

TEST(PlanBestTest, TellsWhatEveryLayerComputes) {
  const Model model = two_convolutions(32, 64);
  const PlanOptions options = job(4, 8);
  const FlopRate costs(1e3);
  for (const BestPlan& plan : best_plans(model, options, costs)) {
    double sum = 0.0;
    for (const LocalWork& work : work_of(model, options, plan)) sum += costs.seconds(work).total();
    EXPECT_NEAR(sum, plan.compute_seconds, rounding * sum);
  }
}

// By sample alone it is a synchronous step, of which only the last micro-batch hides reductions.
// Without buckets, as the search has it, every layer is by itself. The runtime cuts buckets by fp32
// bytes, whatever gradients are sent as.
void expect_synchronous_step(tensor::DataType type, double flops, std::int64_t bytes, int pieces) {
  SCOPED_TRACE(std::to_string(flops) + " flops, buckets of " + std::to_string(bytes) + ", " +
               std::to_string(pieces) + " micro-batches");
  const Model model = two_convolutions(16, 16);
  PlanOptions options = job(4, 4 * pieces);
  options.micro_batches = pieces;
  options.gradient_type = type;
  options.bucket_bytes = bytes;
  Experiment::Update update;
  update.bucket_bytes = std::max<std::int64_t>(bytes, 1);
  const ScalingOptions scaling{.first = 4, .last = 4, .fixed = FixedBatch::global, .job = options};

  const BestPlan plan = plan_on(1, model, options, FlopRate(flops));

  const ScalingPoint point = predict_scaling(model, update, scaling, FlopRate(flops))[0];
  EXPECT_NEAR(plan.overlapped_seconds, point.step_seconds, rounding * point.step_seconds);
  EXPECT_NEAR(plan.compute_seconds, point.compute_seconds, rounding * point.compute_seconds);
  EXPECT_LE(plan.overlapped_seconds, plan.seconds());
}

TEST(PlanBestTest, HidesReductionsAsASynchronousStepDoes) {
  for (const tensor::DataType type : {tensor::DataType::f32, tensor::DataType::bf16}) {
    for (const double flops : {1e2, 1e4, 1e6}) {
      for (const std::int64_t bytes : {0, 1, 512, 2048, 4096, 1 << 13, 1 << 14, 1 << 15, 1 << 30}) {
        for (const int pieces : {1, 8}) expect_synchronous_step(type, flops, bytes, pieces);
      }
    }
  }
}

// Its second layer alone has an input gradient.
Model two_connected() {
  return {.name = "two",
          .input = {1, 1, 1, 64},
          .classes = 64,
          .layers = {{"a", FullyConnectedLayer{.outputs = 64}, {0}},
                     {"b", FullyConnectedLayer{.outputs = 64}, {1}}}};
}

// By outputs each pass has the messages of its exchanges, with their latency: two that gather, and
// two that add up the gradient of the second layer's input.
TEST(PlanBestTest, EveryMicroBatchExchanges) {
  const double pass = 4 * (alpha + beta * 32);
  for (const std::int64_t bucket_bytes : {0, 1}) {
    PlanOptions options = job(4, 2);
    options.bucket_bytes = bucket_bytes;
    const BestPlan one = plan_on(2, two_connected(), options);
    options.batch = 3 * 2;
    options.micro_batches = 3;

    const BestPlan plan = plan_on(2, two_connected(), options);

    ASSERT_EQ(plan.layers[1].split.kind, SplitKind::channel);
    ASSERT_EQ(plan.layers[1].split, one.layers[1].split);
    EXPECT_NEAR(one.exchange_seconds, pass, rounding * pass);
    EXPECT_NEAR(plan.exchange_seconds, 3 * pass, rounding * pass);
    const double step = 2 * pass + one.overlapped_seconds;
    EXPECT_NEAR(plan.overlapped_seconds, step, rounding * step) << bucket_bytes;
  }
}

// Two layers by outputs: the second one's input gradient is added up in two messages while its
// gradients of weights are, in two messages, too. All four leave one port, first one of the
// weights, then one of the input.
TEST(PlanBestTest, ExchangesAndReductionsShareAPort) {
  const Model model = two_connected();
  PlanOptions options = job(4, 2);
  options.bucket_bytes = 1;
  const double gathered = alpha + beta * 32;
  const double input = beta * 32;
  const double weights = beta * 64 * 32 / 2;

  const BestPlan plan = plan_on(2, model, options);

  ASSERT_EQ(plan.layers[1].split.kind, SplitKind::channel);
  const double backward_of_b = weights + input + weights + input + alpha;
  const double step = 2 * gathered + backward_of_b + 2 * (weights + alpha);
  EXPECT_NEAR(plan.overlapped_seconds, step, rounding * step);

  // Inside a node an exchange needs no port.
  options.ranks_per_node = 2;
  const double reductions = 2 * 2 * (weights + alpha);
  const BestPlan on_nodes = plan_on(2, model, options);
  ASSERT_EQ(on_nodes.layers[1].split.kind, SplitKind::channel);
  EXPECT_NEAR(on_nodes.overlapped_seconds, 2 * gathered + reductions, rounding * step);
}

TEST(PlanBestTest, ComputingTakesLongerBesideOtherRanks) {
  const Model model = two_convolutions(16, 16);
  PlanOptions options = job(4, 4);
  const double alone = plan_on(1, model, options, FlopRate(1e4)).compute_seconds;
  options.slowdown = 2.5;
  const double shared = plan_on(1, model, options, FlopRate(1e4)).compute_seconds;
  EXPECT_NEAR(shared, 2.5 * alone, rounding * shared);
}

TEST(PlanBestTest, RefusesOptionsThatMakeNoSense) {
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [] { (void)without_compute(one_connected(16, 16), job(0, 1)); }),
              HasSubstr("one rank"));
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [] { (void)without_compute(one_mean(), job(1, 1)); }),
              HasSubstr("nothing to split"));
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([] { FlopRate(0.0); }),
              HasSubstr("greater than 0"));
}

}  // namespace
}  // namespace rondo::train::plan_best_test
