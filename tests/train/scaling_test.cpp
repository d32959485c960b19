// Predictions of update schemes, held to numbers that were worked out by hand.

#include <algorithm>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/scaling.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::train::scaling_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr double rounding = 1e-12;

// Seconds by hand, whatever the shapes: forward 1, weights 2, data 3 per sample for convolutions,
// and 10, 20, 30 for the fully connected layer. An update takes 5.
class HandCosts final : public ComputeCosts {
 public:
  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override {
    const double samples = static_cast<double>(work.input.n);
    const bool last = (work.kind.get_if<FullyConnectedLayer>() != nullptr);
    const double unit = last ? 10.0 * samples : samples;
    return {.forward = unit,
            .backward_weights = 2 * unit,
            .backward_data = work.input_gradient ? 3 * unit : 0.0};
  }
  [[nodiscard]] double update_seconds(std::size_t /*parameters*/) const override { return 5.0; }
};

// Parameters: 9 * 4 * 4 = 144 for each convolution, 4 * 4 * 4 * 10 + 10 = 650.
Model model() {
  return {.name = "three",
          .input = {1, 4, 4, 4},
          .classes = 10,
          .layers = {{"conv1", ConvolutionLayer{.filters = 4}, {0}},
                     {"conv2", ConvolutionLayer{.filters = 4}, {1}},
                     {"fc", FullyConnectedLayer{.outputs = 10}, {2}}}};
}
constexpr double convolution = 144.0;
constexpr double connected = 650.0;
constexpr double all = 2 * convolution + connected;

// One sample: forward 12; fc final at 32, data until 62; conv2 final at 64, data until 67; conv1
// final at 69, the end.
constexpr double fc_final = 32.0;
constexpr double conv2_final = 64.0;
constexpr double end = 69.0;
constexpr double update = 5.0;

constexpr double alpha = 0.5;
constexpr double beta = 0.125;  // seconds per element

ScalingOptions on(int ranks) {
  const LinkCost link{.alpha_seconds = alpha, .bandwidth = 4.0 / beta};
  return {.first = ranks,
          .last = ranks,
          .batch = 1,
          .fabric = link,
          .node = link,
          .paths = transport::AllreducePaths("ring:0-max")};
}

// Over a thousand times faster links the latency counts.
void hurry(ScalingOptions& options) {
  options.fabric.bandwidth *= 1e3;
  options.paths = transport::AllreducePaths("rd:0-max");
}

Experiment::Update scheme(const std::string& name) {
  Experiment::Update keys;
  keys.scheme = name;
  keys.bucket_bytes = 1;  // every layer by itself
  return keys;
}

double step(const Experiment::Update& keys, const ScalingOptions& options) {
  return predict_scaling(model(), keys, options, HandCosts()).front().step_seconds;
}

void expect_near(double value, double expected) {
  EXPECT_NEAR(value, expected, rounding * expected);
}

double allreduce2(double elements) { return 2 * (alpha + beta * elements / 2); }
double allreduce4(double elements) { return 2 * (3 * alpha + beta * elements * 3 / 4); }
double allreduce8(double elements) { return 2 * (7 * alpha + beta * elements * 7 / 8); }

// After hurry(): two ranks send each other all at once.
double doubling2(double elements) { return alpha + 1.25e-3 * beta * elements; }

TEST(ScalingTest, OneRankOnlyComputes) {
  for (const char* name : {"synchronous", "sharded", "lazy", "k_step", "hierarchical", "cyclic"}) {
    expect_near(step(scheme(name), on(1)), end + update);
  }
}

// fc's reduction takes 82.25 from 32 on, longer than backward; the others follow it.
TEST(ScalingTest, ReductionsFollowEachOther) {
  const double reduced = fc_final + allreduce2(connected) + 2 * allreduce2(convolution);
  expect_near(step(scheme("synchronous"), on(2)), reduced + update);
}

// Halves of allreduces. fc's parameters, the last, arrive when forward has waited for them since it
// ended with the two convolutions, one second each.
TEST(ScalingTest, ADividedUpdateGathersItsParametersDuringForward) {
  const double halves = allreduce2(connected) / 2 + allreduce2(convolution);
  const double gathered = allreduce2(connected) / 2 + allreduce2(convolution);
  expect_near(step(scheme("sharded"), on(2)),
              std::max(end, fc_final + halves) + update / 2 + gathered - 2.0);
}

// With links that are fast enough only the first layer waits.
TEST(ScalingTest, ForwardHidesWhatIsGatheredBehindTheFirstLayer) {
  ScalingOptions fast = on(2);
  fast.fabric = fast.node = {.alpha_seconds = 0.125, .bandwidth = 4.0 * 1e3 / beta};
  const double half = 0.125 + 1e-3 * beta * convolution / 2;
  expect_near(step(scheme("sharded"), fast), end + half + update / 2 + half);
}

// On one rank the share is the whole.
TEST(ScalingTest, ADividedUpdateComputesItsShare) {
  ScalingOptions options = on(1);
  options.last = 2;
  const auto points = predict_scaling(model(), scheme("sharded"), options, HandCosts());
  expect_near(points[0].compute_seconds, end + update);
  expect_near(points[1].compute_seconds, end + update / 2);
  expect_near(points[0].exposed_seconds() + 1.0, 1.0);
}

TEST(ScalingTest, ReductionsWaitForTheirGradients) {
  ScalingOptions fast = on(2);
  hurry(fast);
  expect_near(step(scheme("synchronous"), fast), end + doubling2(convolution) + update);
}

TEST(ScalingTest, GradientsInBf16AreHalfAsManyElements) {
  ScalingOptions narrow = on(2);
  narrow.gradient_type = tensor::DataType::bf16;
  const double reduced = fc_final + allreduce2(connected / 2) + 2 * allreduce2(convolution / 2);
  expect_near(step(scheme("synchronous"), narrow), reduced + update);
}

// Both convolutions are the last bucket: their 1,152 bytes are at most a quarter of one.
TEST(ScalingTest, SmallLayersGoTogether) {
  Experiment::Update keys = scheme("synchronous");
  keys.bucket_bytes = 4 * 1152;
  const double reduced = fc_final + allreduce2(connected) + allreduce2(2 * convolution);
  expect_near(step(keys, on(2)), reduced + update);
}

// The part that backward cannot hide is kept short: a quarter of a bucket holds one convolution of
// 576 bytes.
TEST(ScalingTest, TheLastBucketIsSmall) {
  Experiment::Update keys = scheme("synchronous");
  keys.bucket_bytes = 2600;
  const double reduced = fc_final + allreduce2(connected) + 2 * allreduce2(convolution);
  expect_near(step(keys, on(2)), reduced + update);
  keys.bucket_bytes = 1 << 20;
  expect_near(step(keys, on(2)), end + allreduce2(all) + update);
  keys.bucket_bytes = 4 * 600;  // fc fills one alone
  expect_near(step(keys, on(2)), reduced + update);
}

TEST(ScalingTest, LazyLayersAreReducedOnceInAWindow) {
  Experiment::Update keys = scheme("lazy");
  keys.lazy_layers = "1";
  ScalingOptions options = on(2);
  options.tau = 4.0;
  const double rest = fc_final + allreduce2(connected) + allreduce2(convolution);
  const double last = rest + 2 * allreduce2(convolution);  // the probe, and the layer
  expect_near(step(keys, options), (3 * rest + last) / 4 + update);
}

// Both convolutions' weights, when the first one's gradients are final.
TEST(ScalingTest, EveryLayersControllerLooksAtAllProbes) {
  Experiment::Update keys = scheme("lazy");
  keys.lazy_layers = "2";
  keys.controller = "every_layer";
  ScalingOptions fast = on(2);
  hurry(fast);
  fast.tau = 4.0;
  const double both = doubling2(2 * convolution);
  expect_near(step(keys, fast), (3 * end + end + 2 * both) / 4 + update);  // the probes, the layers
}

// conv2 and fc fill a bucket together; a quarter of one would hold conv2 alone. Lazy layers follow,
// so that no small bucket is last.
TEST(ScalingTest, NoSmallBucketIsLastBeforeLazyLayers) {
  Experiment::Update keys = scheme("lazy");
  keys.lazy_layers = "1";
  keys.bucket_bytes = 2700;
  const double rest = conv2_final + allreduce2(connected + convolution);
  expect_near(step(keys, on(2)), rest + allreduce2(convolution) + update);
}

TEST(ScalingTest, WindowsOfOneIterationNeedNoProbe) {
  Experiment::Update keys = scheme("lazy");
  keys.lazy_layers = "2";
  const double reduced = fc_final + allreduce2(connected) + allreduce2(2 * convolution);
  expect_near(step(keys, on(2)), reduced + update);
}

TEST(ScalingTest, KStepAveragesOnceInAPeriod) {
  Experiment::Update keys = scheme("k_step");
  keys.period = 8;
  expect_near(step(keys, on(4)), end + update + allreduce4(all) / 8);
}

TEST(ScalingTest, APeriodPolicyHasRoundsOfAMeanLength) {
  Experiment::Update keys = scheme("k_step");
  keys.period = 8;
  keys.period_policy = "qsr";
  ScalingOptions options = on(4);
  options.tau = 20.0;
  EXPECT_TRUE(has_mean_period(keys));
  expect_near(step(keys, options), end + update + allreduce4(all) / 20);
}

TEST(ScalingTest, OverlappedStepsHideAnAverage) {
  Experiment::Update keys = scheme("k_step");
  keys.period = 8;
  keys.overlap_steps = 1;
  const double left = std::max(0.0, allreduce4(all) - (end + update));
  expect_near(step(keys, on(4)), end + update + left / 8);
  keys.overlap_steps = 1'000;  // the round has 8
  const double rest = std::max(0.0, allreduce4(all) - 8 * (end + update));
  expect_near(step(keys, on(4)), end + update + rest / 8);
}

TEST(ScalingTest, FragmentsAreAveragedOneByOne) {
  Experiment::Update keys = scheme("k_step");
  keys.period = 8;
  keys.fragments = 4;
  expect_near(step(keys, on(4)), end + update + 4 * allreduce4(all / 4) / 8);
  keys.overlap_steps = 1;
  const double left = std::max(0.0, allreduce4(all / 4) - (end + update));
  expect_near(step(keys, on(4)), end + update + 4 * left / 8);
}

// Steps 2, 4 and 6 of 8 end with a mean of two ranks, and step 8 with one of all four.
TEST(ScalingTest, GroupsAverageMoreOften) {
  Experiment::Update keys = scheme("hierarchical");
  keys.period = 8;
  keys.local_period = 2;
  keys.group = 2;
  expect_near(step(keys, on(4)), end + update + (3 * allreduce2(all) + allreduce4(all)) / 8);
}

// Steps 4 and 12 of 16 end with a mean of two ranks, 8 with one of four, and 16 with one of all.
TEST(ScalingTest, LevelsAverageWhereNoSlowerOneDoes) {
  Experiment::Update keys = scheme("hierarchical");
  keys.period = 16;
  keys.local_period = 4;
  keys.group = 2;
  keys.levels = {{8, 4.0}};
  const double averages = 2 * allreduce2(all) + allreduce4(all) + allreduce8(all);
  expect_near(step(keys, on(8)), end + update + averages / 16);
}

// SGD keeps as much as there are parameters, Adam twice that.
TEST(ScalingTest, AveragesTheOptimizersStateIfAsked) {
  Experiment::Update steps = scheme("k_step");
  steps.period = 8;
  steps.optimizer_state = "average";
  Experiment::Update groups = scheme("hierarchical");
  groups.period = groups.local_period = 8;
  groups.optimizer_state = "average";
  ScalingOptions adam = on(4);
  adam.optimizer_elements = 2;

  expect_near(step(steps, on(4)), end + update + allreduce4(2 * all) / 8);
  expect_near(step(steps, adam), end + update + allreduce4(3 * all) / 8);
  expect_near(step(groups, adam), end + update + allreduce4(3 * all) / 8);
}

constexpr double node_alpha = 0.25;

ScalingOptions on_nodes(int ranks, int ranks_per_node) {
  ScalingOptions options = on(ranks);
  options.ranks_per_node = ranks_per_node;
  options.node = {.alpha_seconds = node_alpha, .bandwidth = 40.0 / beta};
  return options;
}

// Two nodes of two ranks. A ring: both ranks of a node send their halves at once, through a port
// that is no faster than a rank alone; by doubling one of them sends, as if the port were its own.
// On a node two ranks reduce, which loads everything and stores half of it, and then copy it all.
// Between nodes latencies hide behind what the other rank sends.
TEST(ScalingTest, RanksOfANodeShareItsPort) {
  Experiment::Update keys = scheme("k_step");
  keys.period = 1;
  ScalingOptions options = on_nodes(4, 2);
  options.port_bandwidth = options.fabric.bandwidth;
  const double inside = 2 * node_alpha + 0.1 * beta * all * (0.75 + 1.0);
  const double ring = 2 * (2 * beta * all / 2 / 2);
  expect_near(step(keys, options), end + update + inside + ring);
  options.port_bandwidth *= 2;
  expect_near(step(keys, options), end + update + inside + 2 * (alpha + beta * all / 2 / 2));
  options.port_bandwidth = -1.0;
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] { (void)step(keys, options); }),
              HasSubstr("port_bandwidth"));

  ScalingOptions quick = on_nodes(4, 2);
  hurry(quick);
  quick.port_bandwidth = quick.fabric.bandwidth;
  const double doubling = alpha + 1.25e-3 * beta * all;
  expect_near(step(keys, quick), end + update + inside + doubling);
}

// 4 ranks on a node with room for 6, which 4 does not divide.
TEST(ScalingTest, AJobSmallerThanANodeStaysInside) {
  Experiment::Update keys = scheme("k_step");
  keys.period = 1;
  const double inside = 2 * node_alpha + 0.1 * beta * all;
  expect_near(step(keys, on_nodes(4, 6)), end + update + inside);
}

// Every rank is a node: the store is parameters and momenta.
constexpr double between = 2 * alpha + 2 * beta * all;
constexpr double turn = update + between;

// 4 turns take longer than a mini-batch.
TEST(ScalingTest, WorkersWaitForTheToken) {
  Experiment::Update keys = scheme("cyclic");
  keys.delay = "fixed";
  ASSERT_GT(4 * turn, end + update);
  expect_near(step(keys, on(4)), 4 * turn);
}

TEST(ScalingTest, WorkersComputeUntilTheTokenComes) {
  const double mini_batches = (4 * turn - update) / end;
  expect_near(step(scheme("cyclic"), on(4)), 4 * turn / mini_batches);
}

TEST(ScalingTest, WorkersComputeNoMoreThanTheirCap) {
  Experiment::Update keys = scheme("cyclic");
  keys.minibatch_cap = 1;
  const double fixed = step(keys, on(4));
  keys.minibatch_cap = 2;
  const double two = step(keys, on(4));
  keys.minibatch_cap = 1000;

  expect_near(fixed, 4 * turn);
  expect_near(two, 2 * turn);
  EXPECT_EQ(step(keys, on(4)), step(scheme("cyclic"), on(4)));
}

// 6 of 8 handovers stay on a node.
TEST(ScalingTest, TheStoreTravelsOnceForEachNode) {
  Experiment::Update keys = scheme("cyclic");
  keys.delay = "fixed";
  ScalingOptions adam = on_nodes(8, 4);
  adam.optimizer_elements = 2;
  expect_near(step(keys, on_nodes(8, 4)), 8 * update + 6 * node_alpha + 2 * between);
  expect_near(step(keys, adam), 8 * update + 6 * node_alpha + 2 * (2 * alpha + 3 * beta * all));
}

TEST(ScalingTest, InsideANodeTheTokenIsANumber) {
  Experiment::Update keys = scheme("cyclic");
  keys.delay = "fixed";
  const ScalingOptions many = on_nodes(32, 48);
  expect_near(step(keys, many), 32 * (update + node_alpha));
}

TEST(ScalingTest, TheTokenWaitsForSlowWorkers) {
  ScalingOptions options = on(2);
  options.batch = 100;
  for (const char* delay : {"fixed", "dynamic"}) {
    Experiment::Update keys = scheme("cyclic");
    keys.delay = delay;
    expect_near(step(keys, options), 100 * end + update);
  }
}

TEST(ScalingTest, WeakScalingKeepsARanksBatch) {
  ScalingOptions options = on(1);
  options.last = 5;
  options.batch = 3;

  const auto points = predict_scaling(model(), scheme("synchronous"), options, HandCosts());

  ASSERT_THAT(points, SizeIs(3));  // 1, 2, 4
  EXPECT_EQ(points[2].ranks, 4);
  EXPECT_EQ(points[2].global_batch, 12);
  expect_near(points[2].compute_seconds, 3 * end + update);
  expect_near(points[2].images_per_second, 12 / points[2].step_seconds);
  expect_near(points[2].speedup, points[2].images_per_second / points[0].images_per_second);
  expect_near(points[2].efficiency, points[2].speedup / 4);
  expect_near(points[0].efficiency, 1.0);
}

// 3 samples on 2 ranks: one of them has 2. 4 ranks have nothing for one of them.
TEST(ScalingTest, StrongScalingKeepsTheGlobalBatch) {
  ScalingOptions options = on(1);
  options.last = 4;
  options.batch = 3;
  options.fixed = FixedBatch::global;

  const auto points = predict_scaling(model(), scheme("k_step"), options, HandCosts());

  ASSERT_THAT(points, SizeIs(2));
  EXPECT_EQ(points[1].global_batch, 3);
  expect_near(points[1].compute_seconds, 2 * end + update);
  EXPECT_THAT(samples_of_ranks(options), testing::ElementsAre(3, 3, 2));
}

// In eight micro-batches of a sample each, seven stand in front of the last, and none of them hides
// a reduction.
TEST(ScalingTest, OnlyTheLastMicroBatchHidesReductions) {
  ScalingOptions options = on(2);
  options.batch = 8;
  expect_near(step(scheme("synchronous"), options), 8 * end + allreduce2(convolution) + update);

  options.micro_batches = 8;
  const double reductions = allreduce2(connected) + 2 * allreduce2(convolution);
  const auto point = predict_scaling(model(), scheme("synchronous"), options, HandCosts()).front();
  expect_near(point.step_seconds, 7 * end + fc_final + reductions + update);
  expect_near(point.compute_seconds, 8 * end + update);
  EXPECT_EQ(point.global_batch, 16);
}

// Forward of one sample hides as much of them as where there is no other.
TEST(ScalingTest, TheFirstMicroBatchWaitsForParameters) {
  ScalingOptions options = on(2);
  const double alone = step(scheme("sharded"), options);
  options.batch = 3;
  options.micro_batches = 3;
  expect_near(step(scheme("sharded"), options), 2 * end + alone);

  options.batch = 2;
  options.micro_batches = 1;
  const double of_two = step(scheme("sharded"), options);
  options.batch = 5;  // one sample, then two and two
  options.micro_batches = 3;
  EXPECT_GT(step(scheme("sharded"), options), (1 + 2) * end + of_two);
}

// One, two and two of five samples.
TEST(ScalingTest, TheLastMicroBatchIsNotTheSmaller) {
  ScalingOptions options = on(2);
  options.batch = 2;
  const double of_two = step(scheme("synchronous"), options);
  options.batch = 5;
  options.micro_batches = 3;
  expect_near(step(scheme("synchronous"), options), (1 + 2) * end + of_two);
  EXPECT_THAT(samples_of_ranks(options), testing::ElementsAre(2, 1, 2, 1));
}

// 8 ranks have one of 8 samples each, too few for two micro-batches.
TEST(ScalingTest, EveryMicroBatchHasASample) {
  ScalingOptions options = on(1);
  options.last = 8;
  options.batch = 8;
  options.fixed = FixedBatch::global;
  options.micro_batches = 2;
  EXPECT_THAT(predict_scaling(model(), scheme("k_step"), options, HandCosts()), SizeIs(3));
  EXPECT_THAT(samples_of_ranks(options), testing::ElementsAre(4, 4, 2, 1));

  options.first = 8;
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { (void)step(scheme("k_step"), options); }),
              HasSubstr("micro-batches are more than"));
}

TEST(ScalingTest, ComparesWithOneRankWhereverTheRangeBegins) {
  ScalingOptions options = on(2);
  const double alone = 1 / (end + update);
  const auto points = predict_scaling(model(), scheme("synchronous"), options, HandCosts());
  expect_near(points[0].speedup, points[0].images_per_second / alone);
}

// Computing alone is slower, and on one rank nothing is.
TEST(ScalingTest, RanksComputeMoreSlowlyBesideOthers) {
  ScalingOptions options = on(1);
  options.last = 2;
  options.slowdown = 1.5;
  hurry(options);

  const auto points = predict_scaling(model(), scheme("k_step"), options, HandCosts());

  expect_near(points[0].step_seconds, end + update);
  expect_near(points[1].compute_seconds, 1.5 * (end + update));
  const double average = points[1].step_seconds - points[1].compute_seconds;
  const auto period = static_cast<double>(scheme("k_step").period);
  expect_near(average, doubling2(2 * convolution + connected) / period);
}

TEST(ScalingTest, ReadsTheMeanWindowOfARun) {
  rondo::test::ScratchFolder scratch;
  scratch.write("metrics.jsonl",
                "{\"event\": \"start\"}\n"
                "{\"event\": \"window\", \"iterations\": 1, \"tau\": 2}\n"
                "{\"event\": \"window\", \"iterations\": 2, \"tau\": 3}\n");
  scratch.write("rounds.jsonl",
                "{\"event\": \"round\", \"steps\": 1}\n"
                "{\"event\": \"round\", \"steps\": 4}\n");
  scratch.write("steps.jsonl",
                "{\"event\": \"window\", \"iterations\": 1, \"total_step\": 1}\n"
                "{\"event\": \"window\", \"iterations\": 2, \"total_step\": 3}\n"
                "{\"event\": \"window\", \"iterations\": 4, \"total_step\": 7}\n");
  scratch.write("none.jsonl", "{\"event\": \"start\"}\n");

  EXPECT_EQ(mean_window(scratch.path() / "metrics.jsonl"), 1.5);
  EXPECT_EQ(mean_window(scratch.path() / "rounds.jsonl"), 2.5);
  EXPECT_EQ(mean_window(scratch.path() / "steps.jsonl", 1), 3.0);
  EXPECT_EQ(mean_window(scratch.path() / "steps.jsonl", 3), 4.0);
  EXPECT_THAT(rondo::test::error_text<DataError>(
                  [&] { (void)mean_window(scratch.path() / "steps.jsonl", 7); }),
              HasSubstr("has no windows"));
  EXPECT_THAT(
      rondo::test::error_text<DataError>([&] { (void)mean_window(scratch.path() / "none.jsonl"); }),
      HasSubstr("has no windows"));
  EXPECT_THAT(rondo::test::error_text<DataError>(
                  [&] { (void)mean_window(scratch.path() / "absent.jsonl"); }),
              HasSubstr("cannot be read"));
}

TEST(ScalingTest, LeavesOutLinesWhoseFieldsAreOfAnotherType) {
  const rondo::test::ScratchFolder scratch;
  scratch.write("metrics.jsonl",
                "{\"event\": 5}\n"
                "{\"event\": \"window\", \"iterations\": \"many\"}\n"
                "{\"event\": \"window\", \"iterations\": 3, \"total_step\": null}\n");
  EXPECT_EQ(mean_window(scratch.path() / "metrics.jsonl"), 3.0);
}

TEST(ScalingTest, RefusesOptionsThatMakeNoSense) {
  ScalingOptions backwards = on(4);
  backwards.last = 2;
  ScalingOptions short_windows = on(2);
  short_windows.tau = 0.5;

  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { (void)step(scheme("synchronous"), backwards); }),
              HasSubstr("not behind their end"));
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { (void)step(scheme("lazy"), short_windows); }),
              HasSubstr("at least one iteration"));
  ScalingOptions long_windows = on(2);
  long_windows.tau = 17.0;
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { (void)step(scheme("lazy"), long_windows); }),
              HasSubstr("longer than update.max_interval"));
  ScalingOptions starved = on(4);
  starved.fixed = FixedBatch::global;
  starved.batch = 3;
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [&] { (void)step(scheme("synchronous"), starved); }),
              HasSubstr("no sample for each"));
  EXPECT_THAT(
      rondo::test::error_text<std::invalid_argument>([&] { (void)step(scheme("lary"), on(2)); }),
      HasSubstr("no scheme is called lary"));
}

// With no ranks to begin with, twice as many would be none for ever.
TEST(ScalingTest, ChecksRangesBeforeItCountsThem) {
  ScalingOptions backwards = on(4);
  backwards.last = 2;
  ScalingOptions from_none = on(0);
  from_none.last = 4;
  ASSERT_THAT(
      rondo::test::error_text<std::invalid_argument>([&] { (void)samples_of_ranks(backwards); }),
      HasSubstr("not behind their end"));
  EXPECT_THAT(
      rondo::test::error_text<std::invalid_argument>([&] { (void)samples_of_ranks(from_none); }),
      HasSubstr("at least one"));
}

}  // namespace
}  // namespace rondo::train::scaling_test
