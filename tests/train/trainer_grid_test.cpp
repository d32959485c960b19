// Whole runs on grids: a replica of several ranks trains as one rank does, under every scheme that
// allows it, and sends what the report before the run says.

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/trainer.hpp>

#include "executor/lowering.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/resumed_runs.hpp"
#include "train/tiny_network.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/prepare.hpp"

namespace rondo::train::trainer_grid_test {
namespace {

using test::Outcome;
using test::train_on;
using test::with;
using testing::HasSubstr;

constexpr double tolerance = 1e-4;  // of losses, relative

// 200 images in batches of 24: 8 whole ones and a short one an epoch.
Experiment experiment_of(const std::string& scheme) {
  Experiment experiment = test::small_experiment("lenet5");
  experiment.update.scheme = scheme;
  experiment.update.warmup_epochs = 0.0;
  experiment.update.period = 4;
  experiment.update.local_period = 2;
  experiment.train.max_steps = 8;
  return experiment;
}

Experiment on_grid(Experiment experiment, Experiment::Grid grid) {
  experiment.grid = std::move(grid);
  return experiment;
}

void expect_same_training(const Outcome& grid, const Outcome& alone) {
  EXPECT_NEAR(grid.metrics[0].loss, alone.metrics[0].loss, tolerance * alone.metrics[0].loss);
  EXPECT_NEAR(grid.metrics[0].test_loss, alone.metrics[0].test_loss,
              tolerance * alone.metrics[0].test_loss);
  EXPECT_EQ(grid.metrics[0].accuracy, alone.metrics[0].accuracy);
}

using Grids = std::vector<Experiment::Grid>;

/// Replicas of two split layers, each in one way.
const Grids splits{{.channel = 2}, {.filter = 2}, {.height = 2}, {.width = 2}};

/// Convolutions but the first, which has one channel, are split in space and by channel at once.
const Grids tiles{
    {.filter = 2, .height = 2},
    {.channel = 2, .width = 2},
    {.filter = 4, .layers = {{"conv1", "height=4"}, {"conv2", "height=2 channel=1 filter=2"}}}};

/// On `ranks` ranks whose replicas of two split layers.
void expect_same_on_grids(int ranks, const Experiment& experiment, const Outcome& alone) {
  for (const Experiment::Grid& grid : splits) {
    expect_same_training(train_on(ranks, on_grid(experiment, grid)), alone);
  }
}

/// A run of ranks that split nothing, which runs of more ranks on these grids repeat.
struct Repeated {
  int alone;
  std::string settings;
  std::vector<int> ranks;
  Grids grids;
};

// Sharded replicas repeat a synchronous rank: a rank of a grid shares each layer with those that
// hold the same slice of it. How many layers "auto" makes lazy depends on how fast the machine is.
TEST(TrainerGridTest, ReplicasTrainAsSingleRanksDo) {
  const std::string sharded = "update.scheme=sharded";
  const std::string lazy = "update.scheme=lazy update.max_interval=4 update.lazy_layers=";
  const std::string k_step = "update.scheme=k_step";
  const Repeated runs[] = {
      {1, "", {2, 4}, splits},
      {1, "", {4}, tiles},
      {1, "", {8}, {tiles[0]}},
      {1, "", {4}, {{.height = 2, .layers = {{"conv2", "channel=2"}, {"fc2", "sample"}}}}},
      // One sample for two ranks leaves one of them without any, unless layers are split.
      {1, "train.global_batch=1", {2}, {{.plan = PlanChoice::automatic}}},
      // One sample is left for two replicas.
      {1, "train.global_batch=199 train.max_steps=4", {4}, {{.channel = 2}}},
      {1, sharded, {2, 4}, splits},
      {1, sharded, {4}, tiles},
      {1, sharded, {8}, {tiles[0]}},
      {2, k_step + " optimizer.clip_norm=0.1", {8}, tiles},
      {4, k_step, {8}, splits},
      {4, "update.scheme=hierarchical update.group=2", {8}, splits},
      {2, lazy + "1", {4}, splits},
      {2, lazy + "2", {4}, splits},
      {2, lazy + "2", {8}, tiles},
      {2, "update.scheme=lazy update.max_interval=1 update.lazy_layers=auto", {4}, splits},
  };
  std::map<std::string, Outcome> baselines;
  for (const auto& [alone, settings, ranks, grids] : runs) {
    Outcome& baseline = baselines[std::to_string(alone) + (settings == sharded ? "" : settings)];
    if (baseline.metrics.empty()) {
      baseline = train_on(alone, with(experiment_of("synchronous"), settings));
    }
    const Experiment experiment = with(experiment_of("synchronous"), settings);
    for (const int count : ranks) {
      for (const Experiment::Grid& grid : grids) {
        SCOPED_TRACE(settings + " on " + std::to_string(count) + " ranks");
        expect_same_training(train_on(count, on_grid(experiment, grid)), baseline);
      }
    }
  }
}

// Images that are read when they are wanted, and noted. A label is the number of its image.
class CountingSource : public ImageSource {
 public:
  void read(std::int64_t image, const Framing&, tensor::View<std::uint8_t> out) const override {
    ++count_;
    for (std::int64_t i = 0; i < out.shape.size(); ++i) {
      out.data[i] = static_cast<std::uint8_t>(7 * i + 31 * image);
    }
  }
  [[nodiscard]] std::string digest() const override { return "counting"; }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  mutable std::atomic<std::int64_t> count_ = 0;
};

Dataset counted_images() {
  Dataset dataset{.classes = 10, .mean = {0.5F}, .stddev = {0.25F}};
  for (Images* images : {&dataset.training, &dataset.test}) {
    images->shape = {16, 28, 28, 1};
    for (std::int32_t i = 0; i < 16; ++i) images->labels.push_back(i % 10);
    images->source = std::make_shared<CountingSource>();
  }
  return dataset;
}

std::int64_t images_read(const Images& images) {
  return dynamic_cast<const CountingSource&>(*images.source).count();
}

// The two ranks of a replica split the first layer by samples: each decodes half of the images.
TEST(TrainerGridTest, ARankDecodesOnlyTheSamplesThatItReads) {
  Experiment experiment;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 8;
  std::array<double, 2> losses = {};
  for (const std::int64_t parts : {1, 2}) {
    experiment.grid = {.height = 2};
    if (parts == 2) experiment.grid.layers = {{"conv1", "sample"}};
    std::array<Dataset, 2> of_ranks = {counted_images(), counted_images()};
    rondo::test::World{2}.run([&](transport::World& world) {
      const Dataset& mine = of_ranks.at(static_cast<std::size_t>(world.rank()));
      const EpochMetrics last = train(world, experiment, {.dataset = &mine});
      if (world.rank() == 0) losses.at(static_cast<std::size_t>(parts - 1)) = last.test_loss;
    });
    for (const Dataset& mine : of_ranks) {
      EXPECT_EQ(images_read(mine.test), 16 / parts);
      // Up to three batches more were being prepared when the run ended.
      EXPECT_GE(images_read(mine.training), 16 / parts);
      EXPECT_LE(images_read(mine.training), (16 + 3 * 8) / parts);
    }
  }
  EXPECT_NEAR(losses[1], losses[0], tolerance * losses[0]);
}

// A model for images of 8 x 8 x 2, with 3 classes.
Experiment custom_model(const std::string& layers) {
  Experiment experiment = parse_experiment(
      "data.name = 'synthetic'\n[model]\nname = 'custom'\ninput = [8, 8, 2]\nclasses = 3\n"
      "layers = [" +
          layers + "]\n",
      "e");
  const Experiment usual = experiment_of("synchronous");
  experiment.data = usual.data;
  experiment.train = usual.train;
  experiment.optimizer = usual.optimizer;
  experiment.update = usual.update;
  return experiment;
}

// "conv" reads parts of it, "side" whole images of it.
TEST(TrainerGridTest, TwoLayersMayReadTheInputInTwoLayouts) {
  for (const char* side :
       {"{kind = 'fully_connected', name = 'side', outputs = 4, from = 'input'},",
        "{kind = 'convolution', name = 'side', filters = 4, from = 'input'},"
        "{kind = 'global_average_pooling', name = 'side_mean'},"}) {
    const Experiment experiment = custom_model(
        "{kind = 'convolution', name = 'conv', filters = 4},"
        "{kind = 'global_average_pooling', name = 'mean'}," +
        std::string(side) +
        "{kind = 'batch_norm', name = 'sum', residual = 'mean'},"
        "{kind = 'fully_connected', name = 'fc', outputs = 3}");
    const Outcome alone = train_on(1, experiment);

    expect_same_training(
        train_on(2, on_grid(experiment, {.height = 2,
                                         .batch_norm = BatchNormScope::replica,
                                         .layers = {{"side", "sample"}, {"conv", "height=2"}}})),
        alone);
  }
}

// Where nodes cut the replicas in different ways, each position sums in another order.
TEST(TrainerGridTest, CopiesOfAReplicaKeepTheSameBits) {
  transport::WorldOptions options = rondo::test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 3};
  const rondo::test::World world(8, options);
  for (const char* scheme : {"synchronous", "sharded", "lazy", "k_step", "hierarchical"}) {
    Experiment experiment = experiment_of(scheme);
    experiment.update.lazy_layers = "2";
    experiment.update.warmup_epochs = experiment.update.scheme == "k_step" ? 0.5 : 0.0;
    experiment.train.reduce_precision = tensor::DataType::bf16;
    experiment = on_grid(
        std::move(experiment),
        {.height = 2, .layers = {{"fc1", "replica"}, {"fc2", "replica"}, {"fc3", "replica"}}});
    const Outcome outcome = train_on(world, 8, experiment);
    EXPECT_THAT(outcome.parameters, testing::Each(outcome.parameters[0])) << scheme;
  }
}

TEST(TrainerGridTest, GroupsTakeTurnsAsSingleRanksDo) {
  Experiment experiment = experiment_of("cyclic");
  experiment.update.delay = sync::Delay::fixed;
  for (const double clip_norm : {0.0, 0.1}) {
    experiment.optimizer.clip_norm = clip_norm;
    const Outcome alone = train_on(2, experiment);

    for (const Experiment::Grid& grid :
         {Experiment::Grid{.channel = 2}, {.filter = 2}, {.height = 2}}) {
      const Outcome outcome = train_on(4, on_grid(experiment, grid));

      expect_same_training(outcome, alone);
      EXPECT_EQ(outcome.summaries[0].samples, alone.summaries[0].samples);
    }
  }
}

TEST(TrainerGridTest, GroupsClipByTheNormOfTheWholeGradient) {
  for (const char* scheme : {"synchronous", "k_step"}) {
    Experiment experiment = experiment_of(scheme);
    experiment.optimizer.learning_rate = 0.2;
    const double unclipped = train_on(2, experiment).metrics[0].loss;
    experiment.optimizer.clip_norm = 0.1;
    const Outcome alone = train_on(2, experiment);
    ASSERT_GT(std::abs(alone.metrics[0].loss - unclipped), 10 * tolerance * unclipped);

    expect_same_on_grids(4, experiment, alone);
  }
}

TEST(TrainerGridTest, AGroupCountsEveryParameterOnce) {
  const Model model = make_model("resnet8");
  for (const Experiment::Grid& grid : {Experiment::Grid{.channel = 3},
                                       {.filter = 3},
                                       {.height = 3},
                                       {.channel = 3, .layers = {{"layer1.*", "sample"}}}}) {
    rondo::test::World{3}.run([&](transport::World& world) {
      GridMembership place(world, model, on_grid(experiment_of("synchronous"), grid));
      place.join();
      std::array counted{std::int64_t{0}};
      for (const auto& part : place.slices().counted)
        counted[0] += static_cast<std::int64_t>(part.size);
      world.communicator().allreduce(std::span<std::int64_t>(counted)).wait();

      EXPECT_EQ(static_cast<std::size_t>(counted[0]), layout_of(model).parameter_count);
    });
  }
}

/// The types of activations, and of gradients as they are sent.
struct Types {
  tensor::DataType activations = tensor::DataType::f32;
  tensor::DataType gradients = tensor::DataType::f32;
};

std::vector<Types> types() {
  using tensor::DataType;
  std::vector<Types> all{{}, {.gradients = DataType::bf16}};
  if (!tensor::computes_bf16()) return all;
  all.push_back({.activations = DataType::bf16});
  all.push_back({.activations = DataType::bf16, .gradients = DataType::bf16});
  return all;
}

// By ring collectives: small ones are made by every rank reading all others.
TEST(TrainerGridTest, SendsWhatTheReportSays) {
  transport::WorldOptions options = rondo::test::quick_options();
  options.small_bytes = 0;
  Experiment experiment = experiment_of("synchronous");
  experiment.train.max_steps = 1;
  const Model model = make_model("lenet5");
  for (const Experiment::Grid& grid : {Experiment::Grid{.channel = 2},
                                       {.filter = 2},
                                       {.height = 2},
                                       {.width = 2},
                                       {.filter = 2, .height = 2}}) {
    const GridChoice choice = choose_grid(model, grid, 4, experiment.train.global_batch);
    for (const Types& type : types()) {
      const bool tiles = grid.filter * grid.height == 4;
      if (tiles && type.activations == tensor::DataType::bf16) continue;
      std::uint64_t bytes = 0;
      for (const std::uint64_t layer :
           activation_bytes(model, choice.splits, choice.grid, 24, type.activations)) {
        bytes += layer;
      }
      for (const std::uint64_t gradient : gradient_elements(model, choice.splits, choice.grid)) {
        bytes += gradient * tensor::size_of(type.gradients);
      }
      experiment.train.precision = type.activations;
      experiment.train.reduce_precision = type.gradients;

      const Outcome outcome =
          train_on(rondo::test::World(4, options), 4, on_grid(experiment, grid));

      const std::string outcome_of =
          std::string(name_of(type.activations)) + ", gradients as " + name_of(type.gradients);
      EXPECT_EQ(outcome.summaries[0].bytes_sent, bytes) << outcome_of;
      EXPECT_EQ(outcome.summaries[0].synchronous_bytes_sent, bytes) << outcome_of;
    }
  }
}

// Where each parameter is on one rank there is nothing to reduce, and nothing to save.
TEST(TrainerGridTest, OneReplicaWithoutCopiesHasNoReductions) {
  const Experiment experiment = on_grid(experiment_of("synchronous"), {.filter = 2});
  const RunSummary summary = train_on(2, experiment).summaries.at(0);
  EXPECT_EQ(summary.global_reductions, summary.synchronous_reductions);
  EXPECT_EQ(summary.global_bytes, summary.synchronous_bytes);
}

TEST(TrainerGridTest, AModelTooLargeForOneRankTrainsOnFour) {
  Experiment experiment = test::small_experiment("resnet8");
  experiment.train.max_steps = 2;
  experiment.train.memory_limit = std::int64_t{1} << 40U;
  const std::uint64_t needed = train_on(1, experiment).summaries[0].peak_bytes;
  experiment.train.memory_limit = static_cast<std::int64_t>(needed) * 2 / 3;

  const std::string refusal = rondo::test::error_text<ConfigError>([&] {
    std::vector<transport::World> worlds = transport::World::make_threads(1, {});
    RunLog log({}, 0);
    Trainer(worlds[0], prepare_run(worlds[0], experiment), {}, log);
  });
  const Outcome four = train_on(4, on_grid(experiment, {.height = 2}));

  EXPECT_THAT(refusal, HasSubstr("layer"));
  EXPECT_LE(four.summaries[0].peak_bytes, needed * 2 / 3);
  EXPECT_GT(four.metrics[0].loss, 0.0);
}

/// Collectives that each of two ranks, which split images, has completed.
std::uint64_t collectives_with(std::int64_t bucket_bytes, std::vector<float>& parameters) {
  Experiment experiment = experiment_of("k_step");
  experiment.update.bucket_bytes = bucket_bytes;
  std::uint64_t operations = 0;
  rondo::test::World{2}.run([&](transport::World& world) {
    RunLog log({}, world.rank());
    Trainer trainer(world, prepare_run(world, on_grid(experiment, {.height = 2})), {}, log);
    trainer.join();
    trainer.run_epoch();
    if (world.rank() != 0) return;
    operations = world.counters().operations;
    parameters.assign(trainer.parameters().begin(), trainer.parameters().end());
  });
  return operations;
}

// LeNet-5 has five layers; its convolutions are split in space, and their sums meet in each of the
// 8 steps: one by one, or together.
TEST(TrainerGridTest, SumsOfAReplicaTravelTogether) {
  std::vector<float> one_by_one;
  std::vector<float> together;
  const std::uint64_t many = collectives_with(1, one_by_one);
  const std::uint64_t few = collectives_with(1 << 20, together);
  EXPECT_EQ(many - few, 8U);
  EXPECT_EQ(one_by_one, together);
}

// Ranks of other positions hold nothing that differs, and must not go on into the evaluation.
TEST(TrainerGridTest, AReplicaThatDiffersInOnePositionEndsAllRanks) {
  const Experiment experiment = on_grid(test::small_experiment(), {.filter = 2});
  rondo::test::World{4}.run([&](transport::World& world) {
    RunLog log({}, world.rank());
    std::optional<Trainer> trainer;
    std::int64_t steps = 0;
    TrainerOptions options;
    options.on_step = [&] {
      const bool last = ++steps == experiment.train.max_steps;
      if (last && world.rank() == 3) const_cast<float&>(trainer->parameters()[0]) += 1.0F;
    };
    trainer.emplace(world, prepare_run(world, experiment), options, log);
    trainer->join();

    EXPECT_THAT(rondo::test::error_text<NumericError>([&] { trainer->run_epoch(); }),
                HasSubstr("rank(s) 3 differ from rank 1"))
        << "rank " << world.rank();
  });
}

// Where logits lie by sample a rank scores its own; they were divided by those of the replica.
TEST(TrainerGridTest, ProgressIsOfTheSamplesThatTheRankHasScored) {
  for (const int ranks : {2, 4}) {
    const Experiment experiment =
        on_grid(experiment_of("synchronous"), {.filter = 2, .layers = {{"fc3", "sample"}}});
    Progress last;
    TrainerOptions options;
    options.observer.on_progress = [&](const Progress& progress) { last = progress; };
    EpochMetrics epoch;
    rondo::test::World{ranks}.run([&](transport::World& world) {
      const EpochMetrics mine = train(world, experiment, options);
      if (world.rank() == 0) epoch = mine;
    });

    // The samples of other ranks have other losses.
    EXPECT_NEAR(last.loss, epoch.loss, 0.2 * epoch.loss) << ranks;
  }
}

Experiment with_batch_of_24() {
  Experiment experiment;
  experiment.train.global_batch = 24;
  return experiment;
}

TEST(TrainerGridTest, ReportsEveryLayersSplit) {
  const Model model = make_model("lenet5");
  const auto lines =
      grid_report(model, choose_grid(model, {.channel = 2}, 4, 24), with_batch_of_24());
  EXPECT_THAT(lines.at(0), HasSubstr("grid 2 x 2: each replica has 2 ranks"));
  EXPECT_THAT(lines.at(2), HasSubstr("sample")) << "one channel cannot be cut";
  EXPECT_THAT(lines.at(3), HasSubstr("channel=2"));
  EXPECT_THAT(lines.back(), HasSubstr("by all ranks"));
  EXPECT_THAT(grid_report(model, choose_grid(model, {}, 4, 24), with_batch_of_24()),
              testing::IsEmpty());
}

// The output of such a batch norm is its bias, whatever the image is.
TEST(TrainerGridTest, RefusesABatchNormThatSeesOneValueOfAChannel) {
  const auto outcome = [](int ranks, const std::string& settings) {
    const Experiment experiment = test::tiny_experiment(
        "data.shape=[2,2,1] model.input=[2,2,1] train.max_steps=1 " + settings);
    std::string refused;
    rondo::test::World{ranks}.run([&](transport::World& world) {
      try {
        train(world, experiment, {});
      } catch (const ConfigError& error) {
        if (world.rank() == 0) refused = error.what();
      }
    });
    return refused;
  };
  const std::string text =
      "train.global_batch: the batch norm batch_norm4 would train nothing, because it sees one "
      "value of each channel at once, of 1 sample of a rank; give a larger batch, fewer ranks "
      "or grid.batch_norm = \"all\"";

  EXPECT_EQ(outcome(2, "train.global_batch=2"), text);
  EXPECT_EQ(outcome(1, "train.global_batch=2 train.accumulate=2"), text);
  // A replica of two ranks, each of which has a sample.
  const std::string by_sample = "train.global_batch=2 grid.filter=2 grid.layers={\"*\"=\"sample\"}";
  EXPECT_THAT(outcome(2, by_sample),
              HasSubstr("2 samples of a replica; give a larger batch, fewer ranks or "
                        "grid.batch_norm = \"all\" (or \"replica\")"));
  EXPECT_THAT(outcome(1, "train.global_batch=1 grid.batch_norm=all"),
              HasSubstr("of 1 sample of a step; give a larger batch"));
  for (const std::string& enough : {std::string("train.global_batch=4"),
                                    std::string("train.global_batch=2 grid.batch_norm=all"),
                                    by_sample + " grid.batch_norm=replica"}) {
    EXPECT_EQ(outcome(2, enough), "") << enough;
  }
}

}  // namespace
}  // namespace rondo::train::trainer_grid_test
