// Whole runs under every update scheme.

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/scratch_folder.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/resumed_runs.hpp"
#include "train/support/network.hpp"
#include "train/tiny_network.hpp"

namespace rondo::train::trainer_schemes_test {
namespace {

using rondo::test::Backend;
using test::Outcome;
using test::relative_distance;
using test::train_on;
using test::with;
using testing::Each;

// Every update scheme through the trainer: degenerate settings equal their baseline, others learn,
// and the counters are those of the closed forms.

// 200 images in batches of 24: 8 whole ones and a short one an epoch.
Experiment experiment_of(const std::string& scheme, const std::string& model = "lenet5") {
  Experiment experiment = test::small_experiment(model);
  experiment.update.scheme = scheme;
  experiment.update.warmup_epochs = 0.0;
  experiment.train.max_steps = 8;
  return experiment;
}

/// Four epochs of a data set that LeNet-5 learns in them.
Experiment learning(const std::string& scheme) {
  Experiment experiment = experiment_of(scheme);
  experiment.data.training = 1000;
  experiment.train.max_steps = 0;
  experiment.train.epochs = 4;
  return experiment;
}

void expect_averages_are_synchronous(const std::string& scheme, std::int64_t global_batch) {
  Experiment averaging = experiment_of(scheme);
  averaging.train.global_batch = global_batch;
  averaging.data.drop_last = true;  // as averaging does, so that the learning rates are the same
  averaging.update.period = 1;
  averaging.update.local_period = 1;
  averaging.optimizer.momentum = 0.0;
  Experiment synchronous = averaging;
  synchronous.update.scheme = "synchronous";
  for (const int ranks : {1, 2, 4}) {
    EXPECT_LE(relative_distance(train_on(ranks, averaging).parameters.at(0),
                                train_on(ranks, synchronous).parameters.at(0)),
              1e-5)
        << scheme << " on " << ranks;
  }
}

TEST(TrainerSchemesTest, AveragingEveryStepIsSynchronousToRounding) {
  for (const char* scheme : {"k_step", "hierarchical"}) expect_averages_are_synchronous(scheme, 24);
}

// 7 samples are 3 and 4 on two ranks; 1, 2, 2 and 2 on four.
TEST(TrainerSchemesTest, SoItIsWhereRanksDoNotDivideTheBatch) {
  for (const char* scheme : {"k_step", "hierarchical"}) expect_averages_are_synchronous(scheme, 7);
}

/// The parameters of rank 0 at the end of a run of so many ranks; each run is made once.
const std::vector<float>& parameters_of(int ranks, const std::string& model,
                                        const std::string& settings) {
  static std::map<std::string, std::vector<float>> known;
  std::vector<float>& found = known[std::to_string(ranks) + " " + model + " " + settings];
  if (found.empty()) {
    const Experiment experiment = with(experiment_of("synchronous", model), settings);
    found = train_on(ranks, experiment).parameters.at(0);
  }
  return found;
}

/// Two runs of so many ranks that end with the same bits.
struct Equal {
  int ranks;
  std::string model;
  std::string one;
  std::string other;
};

TEST(TrainerSchemesTest, DegenerateSettingsAreTheirBaselines) {
  const std::string k_step = "update.scheme=k_step ";
  const std::string whole = "data.drop_last=true ";  // as averages need it: equal learning rates
  const std::string warm = whole + "update.warmup_epochs=2 update.scheme=";
  const std::string windows = "update.scheme=lazy update.lazy_layers=2 update.max_interval=1";
  // The rate is constant, so that the policies come to rounds of 4 steps, or of one.
  const std::string constant = "optimizer.schedule=constant update.local_period=2 ";
  const std::string qsr = "update.period=2 update.period_policy=qsr update.qsr_alpha=0.1 ";
  const std::string late =
      "update.period=1000 update.period_policy=post_local update.local_from_epoch=1000 ";
  const std::string outer =
      k_step + "update.period=3 update.reduction_momentum=0.5 update.outer_rate=0.75 ";
  std::vector<Equal> runs{
      {4, "lenet5",
       "update.scheme=hierarchical update.group=1 update.period=4 "
       "update.local_period=2",
       k_step + "update.period=4"},
      {1, "lenet5", windows, ""},
      {3, "lenet5", windows, ""},
      {1, "resnet8", windows, ""},
      {3, "resnet8", windows, ""},
      // The computations of the measurement leave no trace in parameters and statistics.
      {1, "resnet8", "update.scheme=lazy update.max_interval=1", ""},
      {2, "lenet5", outer + "update.outer_optimizer=nesterov",
       outer + "update.reduction_momentum_kind=diloco"},
      // The rates of a warm-up are small, too, but replicas are to meet in it.
      {2, "lenet5", k_step + constant + "optimizer.warmup_epochs=2 " + qsr,
       k_step + constant + "optimizer.warmup_epochs=2 update.period=4"},
      // One rank sends nothing, and rounds nothing.
      {1, "lenet5", "train.reduce_precision=bf16", ""},
      {1, "lenet5", "update.scheme=lazy update.lazy_layers=2 train.reduce_precision=bf16",
       "update.scheme=lazy update.lazy_layers=2"},
      {2, "lenet5", "optimizer.clip_norm=1e6", ""},  // longer than any
  };
  for (const char* scheme : {"lazy", "k_step", "hierarchical", "cyclic"}) {
    runs.push_back({2, "resnet8", warm + scheme, whole});
  }
  for (const std::string scheme : {"k_step", "hierarchical"}) {
    const std::string rounds = constant + "update.scheme=" + scheme + " ";
    runs.push_back({3, "lenet5", rounds + qsr, rounds + "update.period=4"});
    runs.push_back({3, "lenet5", rounds + late, rounds + "update.period=1 update.local_period=1"});
  }
  for (const auto& [ranks, model, one, other] : runs) {
    EXPECT_EQ(parameters_of(ranks, model, one), parameters_of(ranks, model, other))
        << ranks << " ranks, " << model << ": " << one;
  }
}

/// A run of so many ranks, and the accuracy that it reaches.
struct Learns {
  int ranks;
  std::string settings;
  double accuracy;
};

TEST(TrainerSchemesTest, EverySchemeAndEveryOptimizerLearns) {
  const std::string rounds = "update.scheme=k_step update.period=4 ";
  const std::string bf16 = "train.reduce_precision=bf16 update.warmup_epochs=1 ";
  const Learns runs[] = {
      {2, "update.scheme=lazy update.lazy_layers=2 update.warmup_epochs=1", 90.0},
      {2, rounds, 90.0},
      {2, "update.scheme=hierarchical update.period=4 update.local_period=2", 90.0},
      {2, rounds + "update.overlap_steps=2", 90.0},
      {2, rounds + "update.fragments=2 update.overlap_steps=1", 90.0},
      {2, rounds + "update.outer_optimizer=adam update.outer_rate=0.01", 80.0},
      {2, "optimizer.name=adam optimizer.learning_rate=0.002", 90.0},
      {2, "optimizer.name=adamw optimizer.learning_rate=0.002", 90.0},
      {2, "optimizer.name=lars optimizer.trust_coefficient=0.1", 90.0},
      {2, bf16, 80.0},
      {2, bf16 + "update.scheme=lazy", 80.0},
      {2, bf16 + "update.scheme=k_step", 80.0},
      {2, bf16 + "update.scheme=hierarchical", 80.0},
      {4, bf16 + "grid.height=2 train.accumulate=2 optimizer.clip_norm=5", 80.0},
  };
  for (const auto& [ranks, settings, accuracy] : runs) {
    const Outcome outcome = train_on(ranks, with(learning("synchronous"), settings));
    EXPECT_GE(outcome.metrics.at(0).accuracy, accuracy) << settings;
    if (ranks == 4) continue;  // the ranks of a replica hold parts of layers
    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0))) << settings;
  }
}
TEST(TrainerSchemesTest, LazyLayersCountTheirReductions) {
  Experiment experiment = experiment_of("lazy");
  experiment.update.lazy_layers = "1.0";
  experiment.update.max_interval = 0;
  experiment.train.epochs = 2;
  experiment.train.max_steps = 0;
  experiment.update.warmup_epochs = 1.0;
  const RunSummary summary = train_on(2, experiment).summaries.at(0);

  EXPECT_EQ(summary.steps, 18);
  EXPECT_EQ(summary.lazy_iterations, 9);
  EXPECT_GT(summary.lazy_reductions, 0U);
  EXPECT_LT(summary.lazy_reductions, 9U);
  EXPECT_LT(summary.global_bytes, summary.synchronous_bytes);
}

TEST(TrainerSchemesTest, LazyLayersCanBeMeasured) {
  Experiment experiment = experiment_of("lazy", "resnet8");
  const Outcome outcome = train_on(2, experiment);
  EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0)));
}

// The reduction of every layer takes as long as the injected latency at least, and all of backward
// much less.
TEST(TrainerSchemesTest, ASlowLinkMakesMoreLayersLazy) {
  const rondo::test::ScratchFolder folder;
  transport::WorldOptions slow = rondo::test::quick_options();
  slow.fabric = rondo::test::fabric_of(Backend::shm_nodes, 2);
  slow.fabric.injected_latency = std::chrono::milliseconds(100);
  rondo::test::World(2, slow).run([&](transport::World& world) {
    TrainerOptions options;
    options.run_folder = world.rank() == 0 ? folder.path() : std::filesystem::path();
    train(world, test::tiny_experiment("update.scheme=lazy train.max_steps=1"), options);
  });

  EXPECT_THAT(test::events(folder.path(), "start").at(0)["lazy_layers"],
              testing::ElementsAre("first", "second"));
}

// 8 synchronous steps, then an epoch of 8 with two averages of all.
TEST(TrainerSchemesTest, AveragingBeginsAfterASynchronousEpochUnlessToldOtherwise) {
  for (const char* scheme : {"k_step", "hierarchical"}) {
    Experiment experiment = experiment_of(scheme);
    experiment.update.warmup_epochs = -1.0;
    experiment.update.period = 4;
    experiment.update.group = 1;
    experiment.train.max_steps = 16;
    experiment.train.epochs = 2;

    EXPECT_EQ(train_on(2, experiment).summaries.at(0).global_reductions, 8U + 2U) << scheme;
  }
}

TEST(TrainerSchemesTest, ARunThatIsAllWarmUpSaysSo) {
  Experiment experiment = experiment_of("k_step");
  experiment.update.warmup_epochs = -1.0;
  std::string notes;
  TrainerOptions options;
  options.observer.on_note = [&](const std::string& line) { notes += line + "\n"; };
  rondo::test::World{2}.run(
      [&](transport::World& world) { static_cast<void>(train(world, experiment, options)); });

  EXPECT_THAT(notes, testing::HasSubstr("updates k_step do not begin: the whole run is their "
                                        "synchronous warm-up (update.warmup_epochs)"));
}

TEST(TrainerSchemesTest, AveragesAreCountedAsTheyAreDue) {
  Experiment experiment = experiment_of("hierarchical");
  experiment.update.period = 4;
  experiment.update.local_period = 2;
  experiment.update.group = 2;
  const Outcome outcome = train_on(4, experiment);
  const RunSummary& summary = outcome.summaries.at(0);
  const std::uint64_t bytes = 4 * 4 * outcome.layout.parameter_count;  // of four ranks
  const std::uint64_t averaged = bytes + 4 * 4;                        // and their weights

  EXPECT_EQ(summary.global_reductions, 2U);
  EXPECT_EQ(summary.local_reductions, 2U);
  EXPECT_EQ(summary.synchronous_reductions, 8U);
  EXPECT_EQ(summary.global_bytes, 2 * averaged);
  EXPECT_EQ(summary.local_bytes, 2 * averaged);
  EXPECT_EQ(summary.synchronous_bytes, 8 * bytes);
}

/// The operations of rank 0 in steps 2 to 39, in which it writes no log line. A few are about time.
std::uint64_t operations_in_steps(const Experiment& base) {
  Experiment experiment = base;
  experiment.data.training = 24 * 50;
  experiment.train.max_steps = 40;
  experiment.train.log_every = 1000;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  rondo::test::World{2}.run([&](transport::World& world) {
    TrainerOptions options;
    int steps = 0;
    options.on_step = [&] {
      ++steps;
      if (world.rank() == 0 && steps == 2) begin = world.counters().operations;
      if (world.rank() == 0 && steps == 39) end = world.counters().operations;
    };
    train(world, experiment, options);
  });
  return end - begin;
}

// In every step each would wait for the slowest, and for the latency of the network.
TEST(TrainerSchemesTest, ReplicasThatStepAloneMeetForRoundsOnly) {
  Experiment experiment = experiment_of("synchronous");
  EXPECT_GE(operations_in_steps(experiment), 37U);
  experiment.update.scheme = "k_step";
  experiment.update.period = 10;
  EXPECT_LE(operations_in_steps(experiment), 18U);
  experiment.update.period = 1000;
  EXPECT_LE(operations_in_steps(experiment), 9U);
}

TEST(TrainerSchemesTest, TheGroupIsTheNodeUnlessItIsGiven) {
  Experiment experiment = experiment_of("hierarchical");
  experiment.update.period = 8;
  experiment.update.local_period = 2;
  const rondo::test::World nodes(Backend::hierarchy, 4);
  const Outcome of_nodes = train_on(nodes, 4, experiment);
  experiment.update.group = 2;
  const Outcome of_pairs = train_on(nodes, 4, experiment);

  EXPECT_EQ(of_nodes.parameters, of_pairs.parameters);
  EXPECT_EQ(of_nodes.summaries.at(0).local_reductions, 3U);
}

// So the defaults, on one machine, are K-step averaging of the local period.
TEST(TrainerSchemesTest, OnOneNodeEveryAverageIsGlobal) {
  Experiment experiment = experiment_of("hierarchical");
  experiment.update.period = 8;
  experiment.update.local_period = 2;
  const RunSummary summary = train_on(4, experiment).summaries.at(0);
  EXPECT_EQ(summary.global_reductions, 4U);
  EXPECT_EQ(summary.local_reductions, 0U);
  EXPECT_EQ(summary.local_bytes, 0U);
}

TEST(TrainerSchemesTest, BytesInMessagesAreCounted) {
  const Outcome outcome =
      train_on(rondo::test::World(Backend::shm_nodes, 2), 2, experiment_of("synchronous"));
  EXPECT_GE(outcome.summaries.at(0).bytes_sent, outcome.summaries.at(0).synchronous_bytes_sent);
}

// Parameters that are still on their way at a log point count, too.
TEST(TrainerSchemesTest, ShardedUpdatesSendAsMuchAsSynchronousOnes) {
  Experiment experiment = experiment_of("sharded");
  experiment.train.log_every = 1;
  const RunSummary summary = train_on(2, experiment).summaries.at(0);
  EXPECT_EQ(summary.bytes_sent, summary.synchronous_bytes_sent);
}

// Gradients that are sent as bf16.

Experiment reducing_in_bf16(Experiment experiment) {
  experiment.train.reduce_precision = tensor::DataType::bf16;
  return experiment;
}

// 8 steps of two pairs of ranks, which are nodes of their own.
TEST(TrainerBf16GradientsTest, HalveTheBytesInsideNodesAndBetweenThem) {
  for (const Backend backend : {Backend::shm, Backend::hierarchy}) {
    const rondo::test::World world(backend, 4);
    const RunSummary full = train_on(world, 4, experiment_of("synchronous")).summaries.at(0);
    const Outcome outcome = train_on(world, 4, reducing_in_bf16(experiment_of("synchronous")));
    const RunSummary& half = outcome.summaries.at(0);

    EXPECT_EQ(2 * half.global_bytes, full.global_bytes);
    EXPECT_EQ(half.global_bytes, half.synchronous_bytes);
    EXPECT_EQ(2 * half.synchronous_bytes_sent, full.synchronous_bytes_sent);
    EXPECT_EQ(2 * half.bytes_sent, full.bytes_sent);
    EXPECT_EQ(half.global_reductions, full.global_reductions);
    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0)));
  }
}

TEST(TrainerSchemesTest, AllRanksEndWithTheSameParameters) {
  for (const char* scheme : {"k_step", "hierarchical"}) {
    Experiment experiment = experiment_of(scheme, "resnet8");
    experiment.update.period = 3;  // the run ends within a round
    experiment.update.local_period = 3;
    experiment.update.reduction_momentum = 0.5;
    const Outcome outcome = train_on(3, experiment);
    EXPECT_THAT(outcome.parameters, Each(outcome.parameters.at(0))) << scheme;
  }
}

// The number of averages in 32 steps, in which the loss falls to a hundredth.
std::uint64_t averages_in_rounds(int ranks, const std::string& settings) {
  const Experiment experiment = test::tiny_experiment(
      "update.scheme=k_step update.warmup_epochs=0 update.period=4 optimizer.schedule=constant "
      "train.epochs=8 " +
      settings);
  return train_on(ranks, experiment).summaries.at(0).global_reductions;
}

// The ranks of a replica hold parts of its loss. Ranks that chose different rounds would wait for
// each other until the deadline.
TEST(TrainerSchemesTest, AdaptiveRoundsFollowTheLossOnAGridToo) {
  const std::string adaptive = "update.period_policy=adaptive ";
  EXPECT_EQ(averages_in_rounds(2, ""), 8U);
  EXPECT_GT(averages_in_rounds(2, adaptive), 8U);
  EXPECT_GT(averages_in_rounds(4, adaptive + "grid.height=2"), 8U);
}

/// Weight decay that takes a fifth of what it acts on in every step of SGD or AdamW.
Experiment with_strong_decay(const std::string& scheme, bool decay_norm_and_bias) {
  Experiment experiment = experiment_of(scheme, "resnet8");
  experiment.update.max_interval = 1;
  experiment.update.delay = sync::Delay::fixed;
  experiment.optimizer.schedule = sync::Decay::constant;
  experiment.optimizer.learning_rate = 0.01;
  experiment.optimizer.momentum = 0.0;
  experiment.optimizer.weight_decay = 20.0;
  experiment.optimizer.decay_norm_and_bias = decay_norm_and_bias;
  return experiment;
}

/// The mean length of a parameter's elements on rank 0, as a multiple of that in the beginning; of
/// all weights, or of batch norm's scales, which begin at 1.
double shrinkage(const Outcome& outcome, std::size_t dimensions) {
  const ParameterLayout& layout = outcome.layout;
  std::vector<float> before(layout.parameter_count);
  std::vector<float> statistics(layout.statistic_count);
  initialize(layout, 1, before, statistics);
  double sum = 0.0;
  double sum_before = 0.0;
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.shape.size() != dimensions || parameter.initial == Initial::zeros) continue;
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.size(); ++i) {
      sum += std::abs(static_cast<double>(outcome.parameters.at(0)[i]));
      sum_before += std::abs(static_cast<double>(before[i]));
    }
  }
  return sum / sum_before;
}

void expect_decay_of_weights_alone(const Experiment& experiment) {
  const Outcome outcome = train_on(2, experiment);

  EXPECT_LT(shrinkage(outcome, 4), 0.7) << experiment.update.scheme;
  EXPECT_GT(shrinkage(outcome, 1), 0.9) << experiment.update.scheme;
}

TEST(TrainerSchemesTest, WeightDecayCanLeaveOutBatchNormUnderEveryScheme) {
  EXPECT_LT(shrinkage(train_on(2, with_strong_decay("synchronous", true)), 1), 0.7);
  for (const char* scheme : {"synchronous", "lazy", "k_step", "hierarchical", "cyclic"}) {
    expect_decay_of_weights_alone(with_strong_decay(scheme, false));
  }
  Experiment experiment = with_strong_decay("synchronous", false);
  experiment.optimizer.name = OptimizerName::adamw;
  expect_decay_of_weights_alone(experiment);
}

TEST(TrainerSchemesTest, WeightDecayCanLeaveOutBatchNormOnEveryGrid) {
  for (const Experiment::Grid& grid :
       {Experiment::Grid{.channel = 2}, {.filter = 2}, {.height = 2}}) {
    Experiment experiment = with_strong_decay("synchronous", false);
    experiment.grid = grid;
    expect_decay_of_weights_alone(experiment);
  }
}

TEST(TrainerSchemesTest, WholeBatchesLeaveOutTheShortLastOne) {
  Experiment experiment = experiment_of("k_step");
  experiment.train.max_steps = 0;
  EXPECT_EQ(train_on(2, experiment).summaries.at(0).steps, 8);
  EXPECT_EQ(train_on(2, experiment).summaries.at(0).samples, 8 * 24);
}

}  // namespace
}  // namespace rondo::train::trainer_schemes_test
