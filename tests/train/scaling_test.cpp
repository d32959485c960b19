// Predictions of update schemes, held to numbers that were worked out by hand.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
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
          .job = {.batch = 1,
                  .fabric = link,
                  .node = link,
                  .paths = transport::AllreducePaths("ring:0-max")}};
}

// Over a thousand times faster links the latency counts.
ScalingOptions hurried(ScalingOptions options) {
  options.job.fabric.bandwidth *= 1e3;
  options.job.paths = transport::AllreducePaths("rd:0-max");
  return options;
}

ScalingOptions with_tau(double tau, ScalingOptions options) {
  options.tau = tau;
  return options;
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

// On hurried links: two ranks send each other all at once.
double doubling2(double elements) { return alpha + 1.25e-3 * beta * elements; }

constexpr double node_alpha = 0.25;

ScalingOptions on_nodes(int ranks, int ranks_per_node) {
  ScalingOptions options = on(ranks);
  options.job.ranks_per_node = ranks_per_node;
  options.job.node = {.alpha_seconds = node_alpha, .bandwidth = 40.0 / beta};
  return options;
}

/// The keys of [update] in `text`, as in "k_step period=8"; each layer is a bucket unless told.
Experiment::Update update_of(const std::string& text) {
  std::istringstream words("scheme=" + text);
  std::vector<std::string> settings{"data.name=synthetic", "model.name=lenet5",
                                    "update.bucket_bytes=1"};
  for (std::string word; words >> word;) settings.push_back("update." + word);
  return parse_experiment("", "", settings).update;
}

/// A step with these keys, and the seconds that it takes.
struct Case {
  std::string keys;
  ScalingOptions options;
  double seconds;
};

void expect_steps(const std::vector<Case>& cases) {
  for (const auto& [keys, options, seconds] : cases) {
    SCOPED_TRACE(keys + " on " + std::to_string(options.first) + " ranks");
    expect_near(step(update_of(keys), options), seconds);
  }
}

TEST(ScalingTest, OneRankOnlyComputes) {
  for (const char* name : {"synchronous", "sharded", "lazy", "k_step", "hierarchical", "cyclic"}) {
    expect_near(step(scheme(name), on(1)), end + update);
  }
}

// fc's reduction takes 82.25 from 32 on, longer than backward; the others follow it. The part that
// backward cannot hide is kept short: the last bucket is a quarter of one at most, which of 2,600
// bytes holds one convolution of 576 bytes.
TEST(ScalingTest, BackwardHidesReductions) {
  const double fc = fc_final + allreduce2(connected);
  const double reduced = fc + 2 * allreduce2(convolution) + update;
  ScalingOptions narrow = on(2);
  narrow.job.gradient_type = tensor::DataType::bf16;
  const double half = fc_final + allreduce2(connected / 2) + 2 * allreduce2(convolution / 2);
  expect_steps({{"synchronous", on(2), reduced},
                {"synchronous", hurried(on(2)), end + doubling2(convolution) + update},
                {"synchronous", narrow, half + update},
                {"synchronous bucket_bytes=4608", on(2), fc + allreduce2(2 * convolution) + update},
                {"synchronous bucket_bytes=2600", on(2), reduced},
                {"synchronous bucket_bytes=2400", on(2), reduced},
                {"synchronous bucket_bytes=1048576", on(2), end + allreduce2(all) + update}});
}

// Halves of allreduces. fc's parameters, the last, arrive when forward has waited for them since it
// ended with the two convolutions, one second each. With fast links only the first layer waits.
TEST(ScalingTest, ADividedUpdateGathersItsParametersDuringForward) {
  const double half = allreduce2(connected) / 2 + allreduce2(convolution);
  ScalingOptions fast = on(2);
  fast.job.fabric = fast.job.node = {.alpha_seconds = 0.125, .bandwidth = 4.0 * 1e3 / beta};
  const double fast_half = 0.125 + 1e-3 * beta * convolution / 2;
  expect_steps({{"sharded", on(2), std::max(end, fc_final + half) + update / 2 + half - 2.0},
                {"sharded", fast, end + fast_half + update / 2 + fast_half}});
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

// Lazy layers are reduced once in a window, behind a probe of as many bytes; every layer's
// controller looks at all probes. Lazy layers follow the bucket of conv2 and fc, so that no small
// bucket is last. Windows of one iteration need no probe.
TEST(ScalingTest, LazyLayersAreReducedOnceInAWindow) {
  const double fc = fc_final + allreduce2(connected);
  const double rest = fc + allreduce2(convolution);
  const double last = rest + 2 * allreduce2(convolution);
  const double both = doubling2(2 * convolution);
  const double bucket = conv2_final + allreduce2(connected + convolution);
  expect_steps(
      {{"lazy lazy_layers=1", with_tau(4.0, on(2)), (3 * rest + last) / 4 + update},
       {"lazy lazy_layers=2 controller=every_layer", with_tau(4.0, hurried(on(2))),
        end + 2 * both / 4 + update},
       {"lazy lazy_layers=1 bucket_bytes=2700", on(2), bucket + allreduce2(convolution) + update},
       {"lazy lazy_layers=2", on(2), fc + allreduce2(2 * convolution) + update}});
}

// SGD keeps as much as there are parameters, Adam twice that. A round hides no more than its steps
// take.
TEST(ScalingTest, AveragesAreSharedByTheStepsOfARound) {
  constexpr double alone = end + update;
  const double left = std::max(0.0, allreduce4(all) - alone);
  const double least = std::max(0.0, allreduce4(all) - 8 * alone);
  const double part = std::max(0.0, allreduce4(all / 4) - alone);
  const double levels = 2 * allreduce2(all) + allreduce4(all) + allreduce8(all);
  ScalingOptions adam = on(4);
  adam.job.optimizer_elements = 2;
  const std::string steps = "k_step period=8 ";
  const std::string groups = "hierarchical period=8 ";
  expect_steps({
      {steps, on(4), alone + allreduce4(all) / 8},
      {steps + "period_policy=qsr qsr_alpha=1", with_tau(20.0, on(4)),
       alone + allreduce4(all) / 20},
      {steps + "overlap_steps=1", on(4), alone + left / 8},
      {steps + "overlap_steps=1000", on(4), alone + least / 8},
      {steps + "fragments=4", on(4), alone + 4 * allreduce4(all / 4) / 8},
      {steps + "fragments=4 overlap_steps=1", on(4), alone + 4 * part / 8},
      {steps + "optimizer_state=average", on(4), alone + allreduce4(2 * all) / 8},
      {steps + "optimizer_state=average", adam, alone + allreduce4(3 * all) / 8},
      {groups + "optimizer_state=average local_period=8", adam, alone + allreduce4(3 * all) / 8},
      // Steps 2, 4 and 6 of 8 end with a mean of two ranks, and step 8 with one of all four.
      {groups + "local_period=2 group=2", on(4),
       alone + (3 * allreduce2(all) + allreduce4(all)) / 8},
      // Steps 4 and 12 of 16 end with a mean of two ranks, 8 with one of four, 16 with one of all.
      {"hierarchical period=16 local_period=4 group=2 levels={8=4}", on(8), alone + levels / 16},
  });
  EXPECT_TRUE(has_mean_period(update_of("k_step period_policy=qsr qsr_alpha=1")));
}

// Two nodes of two ranks. A ring: both ranks of a node send their halves at once, through a port
// that is no faster than a rank alone; by doubling one of them sends, as if the port were its own.
// On a node two ranks reduce, which loads everything and stores half of it, and then copy it all.
// Between nodes latencies hide behind what the other rank sends. A job of 4 ranks stays inside a
// node with room for 6.
TEST(ScalingTest, RanksOfANodeShareItsPort) {
  const double latency = end + update + 2 * node_alpha;
  const double inside = latency + 0.1 * beta * all * (0.75 + 1.0);
  const auto with_port = [](double factor, ScalingOptions options) {
    options.job.port_bandwidth = factor * options.job.fabric.bandwidth;
    return options;
  };
  const ScalingOptions nodes = on_nodes(4, 2);
  expect_steps(
      {{"k_step period=1", with_port(1.0, nodes), inside + 2 * beta * all / 2},
       {"k_step period=1", with_port(2.0, nodes), inside + 2 * (alpha + beta * all / 2 / 2)},
       {"k_step period=1", with_port(1.0, hurried(nodes)), inside + alpha + 1.25e-3 * beta * all},
       {"k_step period=1", on_nodes(4, 6), latency + 0.1 * beta * all}});
}

// The store is parameters and momenta; between nodes it travels with the token, once for each node.
TEST(ScalingTest, WorkersComputeUntilTheTokenComes) {
  constexpr double between = 2 * alpha + 2 * beta * all;
  constexpr double turn = update + between;
  ASSERT_GT(4 * turn, end + update);
  const double mini_batches = (4 * turn - update) / end;
  ScalingOptions slow = on(2);
  slow.job.batch = 100;
  ScalingOptions adam = on_nodes(8, 4);
  adam.job.optimizer_elements = 2;
  const double inside = 8 * update + 6 * node_alpha;  // 6 of 8 handovers stay on a node
  expect_steps({{"cyclic delay=fixed", on(4), 4 * turn},
                {"cyclic", on(4), 4 * turn / mini_batches},
                {"cyclic minibatch_cap=1", on(4), 4 * turn},
                {"cyclic minibatch_cap=2", on(4), 2 * turn},
                {"cyclic minibatch_cap=1000", on(4), 4 * turn / mini_batches},
                {"cyclic delay=fixed", on_nodes(8, 4), inside + 2 * between},
                {"cyclic delay=fixed", adam, inside + 2 * (2 * alpha + 3 * beta * all)},
                {"cyclic delay=fixed", on_nodes(32, 48), 32 * (update + node_alpha)},
                {"cyclic delay=fixed", slow, 100 * end + update},
                {"cyclic delay=dynamic", slow, 100 * end + update}});
}

TEST(ScalingTest, WeakScalingKeepsARanksBatch) {
  ScalingOptions options = on(1);
  options.last = 5;
  options.job.batch = 3;

  const auto points = predict_scaling(model(), scheme("synchronous"), options, HandCosts());

  ASSERT_EQ(points.size(), 3U);  // 1, 2, 4
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
  options.job.batch = 3;
  options.fixed = FixedBatch::global;

  const auto points = predict_scaling(model(), scheme("k_step"), options, HandCosts());

  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[1].global_batch, 3);
  expect_near(points[1].compute_seconds, 2 * end + update);
  EXPECT_THAT(samples_of_ranks(options), testing::ElementsAre(3, 3, 2));
}

// In eight micro-batches of a sample each, seven stand in front of the last, and none of them hides
// a reduction.
TEST(ScalingTest, OnlyTheLastMicroBatchHidesReductions) {
  ScalingOptions options = on(2);
  options.job.batch = 8;
  expect_near(step(scheme("synchronous"), options), 8 * end + allreduce2(convolution) + update);

  options.job.micro_batches = 8;
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
  options.job.batch = 3;
  options.job.micro_batches = 3;
  expect_near(step(scheme("sharded"), options), 2 * end + alone);

  options.job.batch = 2;
  options.job.micro_batches = 1;
  const double of_two = step(scheme("sharded"), options);
  options.job.batch = 5;  // one sample, then two and two
  options.job.micro_batches = 3;
  EXPECT_GT(step(scheme("sharded"), options), (1 + 2) * end + of_two);
}

// One, two and two of five samples.
TEST(ScalingTest, TheLastMicroBatchIsNotTheSmaller) {
  ScalingOptions options = on(2);
  options.job.batch = 2;
  const double of_two = step(scheme("synchronous"), options);
  options.job.batch = 5;
  options.job.micro_batches = 3;
  expect_near(step(scheme("synchronous"), options), (1 + 2) * end + of_two);
  EXPECT_THAT(samples_of_ranks(options), testing::ElementsAre(2, 1, 2, 1));
}

// 8 ranks have one of 8 samples each, too few for two micro-batches.
TEST(ScalingTest, EveryMicroBatchHasASample) {
  ScalingOptions options = on(1);
  options.last = 8;
  options.job.batch = 8;
  options.fixed = FixedBatch::global;
  options.job.micro_batches = 2;
  EXPECT_EQ(predict_scaling(model(), scheme("k_step"), options, HandCosts()).size(), 3U);
  EXPECT_THAT(samples_of_ranks(options), testing::ElementsAre(4, 4, 2, 1));
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
  options.job.slowdown = 1.5;
  options = hurried(options);

  const auto points = predict_scaling(model(), scheme("k_step"), options, HandCosts());

  expect_near(points[0].step_seconds, end + update);
  expect_near(points[1].compute_seconds, 1.5 * (end + update));
  const double average = points[1].step_seconds - points[1].compute_seconds;
  const auto period = static_cast<double>(scheme("k_step").period);
  expect_near(average, doubling2(2 * convolution + connected) / period);
}

TEST(ScalingTest, ReadsTheMeanWindowOfARun) {
  const rondo::test::ScratchFolder scratch;
  const auto mean = [&](const std::string& lines, std::int64_t after = 0) {
    return mean_window(scratch.write("metrics.jsonl", lines), after);
  };
  const std::string start = R"({"event": "start"})"
                            "\n";
  const std::string windows = R"({"event": "window", "iterations": 1, "total_step": 1}
{"event": "window", "iterations": 2, "total_step": 3}
{"event": "window", "iterations": 4, "total_step": 7}
)";
  EXPECT_EQ(mean(start + R"({"event": "window", "iterations": 1, "tau": 2}
{"event": "window", "iterations": 2, "tau": 3})"),
            1.5);
  EXPECT_EQ(mean(R"({"event": "round", "steps": 1}
{"event": "round", "steps": 4})"),
            2.5);
  EXPECT_EQ(mean(windows, 1), 3.0);
  EXPECT_EQ(mean(windows, 3), 4.0);
  // Lines whose fields are of another type are left out.
  EXPECT_EQ(mean(R"({"event": 5}
{"event": "window", "iterations": "many"}
{"event": "window", "iterations": 3, "total_step": null})"),
            3.0);
  const auto refused = [](const std::function<void()>& call) {
    return rondo::test::error_text<DataError>(call);
  };
  EXPECT_THAT(refused([&] { (void)mean(windows, 7); }), HasSubstr("has no windows"));
  EXPECT_THAT(refused([&] { (void)mean(start); }), HasSubstr("has no windows"));
  EXPECT_THAT(refused([&] { (void)mean_window(scratch.path() / "absent.jsonl"); }),
              HasSubstr("cannot be read"));
}

TEST(ScalingTest, RefusesOptionsThatMakeNoSense) {
  struct Refusal {
    std::string scheme;
    std::function<void(ScalingOptions&)> change;
    std::string words;
  };
  const Refusal refusals[] = {
      {"synchronous", [](auto& o) { o.first = 4; }, "not behind their end"},
      {"lazy", [](auto& o) { o.tau = 0.5; }, "at least one iteration"},
      {"lazy", [](auto& o) { o.tau = 17.0; }, "longer than update.max_interval"},
      {"k_step", [](auto& o) { o.job.port_bandwidth = -1.0; }, "port_bandwidth"},
      {"synchronous", [](auto& o) { o.fixed = FixedBatch::global; }, "no sample for each"},
      {"k_step",
       [](auto& o) { o.fixed = FixedBatch::global, o.job.batch = o.job.micro_batches = 2; },
       "micro-batches are more than"},
      {"lary", [](auto&) {}, "no scheme is called lary"},
  };
  for (const auto& [name, change, words] : refusals) {
    ScalingOptions options = on(2);
    change(options);
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&, scheme_name = name] { (void)step(scheme(scheme_name), options); }),
                HasSubstr(words));
  }
}

// With no ranks to begin with, twice as many would be none for ever.
TEST(ScalingTest, ChecksRangesBeforeItCountsThem) {
  const auto refused = [](int first, int last) {
    ScalingOptions options = on(first);
    options.last = last;
    return rondo::test::error_text<std::invalid_argument>([&] { (void)samples_of_ranks(options); });
  };
  ASSERT_THAT(refused(4, 2), HasSubstr("not behind their end"));
  EXPECT_THAT(refused(0, 4), HasSubstr("at least one"));
}

}  // namespace
}  // namespace rondo::train::scaling_test
