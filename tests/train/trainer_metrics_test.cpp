// The results that a run leaves behind, and runs that are impossible.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "train/resumed_runs.hpp"

namespace rondo::train::trainer_metrics_test {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::small_experiment;
using test::with;
using testing::HasSubstr;

// The reports of a run: the observer, and metrics.jsonl with every name that docs/metrics.md lists.

constexpr std::uint64_t ranks = 2;

/// All that a run of two epochs of 9 steps told: 200 images in batches of 24.
struct Told {
  std::vector<json> lines = {};
  std::vector<std::string> notes = {};
  std::vector<Progress> progress = {};
  std::vector<EpochMetrics> epochs = {};
  EpochMetrics returned = {};
};

Told told_by_a_run() {
  const rondo::test::ScratchFolder scratch;
  const std::filesystem::path folder = scratch.path() / "run";
  Told told;
  Experiment experiment = test::small_experiment();
  experiment.train.max_steps = 0;
  experiment.train.epochs = 2;
  experiment.train.log_every = 4;
  TrainerOptions options;
  options.run_folder = folder;
  options.observer.on_note = [&](const std::string& line) { told.notes.push_back(line); };
  options.observer.on_progress = [&](const Progress& now) { told.progress.push_back(now); };
  options.observer.on_epoch = [&](const EpochMetrics& epoch) { told.epochs.push_back(epoch); };
  rondo::test::World{static_cast<int>(ranks)}.run([&](transport::World& world) {
    const EpochMetrics last = train(world, experiment, options);
    if (world.rank() == 0) told.returned = last;
  });
  std::ifstream stream(folder / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) told.lines.push_back(json::parse(line));
  return told;
}

/// One run for all cases.
const Told& told() {
  static const Told once = told_by_a_run();
  return once;
}

std::vector<json> lines_of(const std::string& event) {
  std::vector<json> found;
  for (const json& line : told().lines) {
    if (line.at("event") == event) found.push_back(line);
  }
  return found;
}

TEST(TrainerMetricsTest, LinesComeInOrder) {
  std::vector<std::string> events;
  for (const json& line : told().lines) events.push_back(line.at("event"));
  EXPECT_THAT(events, testing::ElementsAre("start", "step", "step", "epoch", "step", "step",
                                           "epoch", "end"));
}

TEST(TrainerMetricsTest, StartLinesDescribeTheRun) {
  const json start = lines_of("start").at(0);
  EXPECT_EQ(start.at("rank_batches"), (std::vector{12, 12}));
  EXPECT_EQ(start.at("total_steps"), 18);
  EXPECT_EQ(start.at("hosts").size(), 2U);
  EXPECT_EQ(start.at("nodes"), 1);
  EXPECT_EQ(start.at("route"), "none");
}

TEST(TrainerMetricsTest, StepLinesCountFromOne) {
  const json step = lines_of("step").at(3);
  EXPECT_EQ(step.at("epoch"), 2);
  EXPECT_EQ(step.at("step"), 8);
  EXPECT_EQ(step.at("total_step"), 17);
}

TEST(TrainerMetricsTest, EndLinesSumUpTheRun) {
  const json end = lines_of("end").at(0);
  EXPECT_EQ(end.at("reason"), "completed");
  EXPECT_EQ(end.at("steps"), 18);
  EXPECT_EQ(end.at("final_accuracy"), told().returned.accuracy);
  EXPECT_EQ(end.at("best_accuracy"),
            std::max(told().epochs.at(0).accuracy, told().epochs.at(1).accuracy));
}

TEST(TrainerMetricsTest, EpochFiguresAreOfTheEpochAlone) {
  for (const EpochMetrics& epoch : told().epochs) {
    EXPECT_EQ(epoch.global_reductions, 9U);  // one per step
    EXPECT_EQ(epoch.local_reductions, 0U);
    EXPECT_EQ(epoch.evaluation_reductions, 0U);  // LeNet has no statistics
    EXPECT_NEAR(epoch.images_per_second * epoch.seconds, 200.0, 1e-6);
  }
}

// In 9 steps every gradient goes to the other rank once, and its sum back: 2 (P-1) times the bytes
// of the gradients a step, over all ranks. Reductions by the trainer itself are not counted.
TEST(TrainerMetricsTest, BytesSentAreThoseOfTheScheme) {
  const auto parameters = lines_of("start").at(0).at("parameters").get<std::uint64_t>();
  for (const EpochMetrics& epoch : told().epochs) {
    EXPECT_EQ(epoch.bytes_sent, 9 * 2 * (ranks - 1) * parameters * sizeof(float));
  }
}

TEST(TrainerMetricsTest, SharesAreOfTheStepTime) {
  for (const EpochMetrics& epoch : told().epochs) {
    EXPECT_GT(epoch.communication_share, 0.0);
    EXPECT_GE(epoch.wait_share, 0.0);
    EXPECT_LT(epoch.communication_share + epoch.wait_share, 1.0);
  }
}

TEST(TrainerMetricsTest, EvaluationTakesSomeTime) {
  for (const EpochMetrics& epoch : told().epochs) EXPECT_GT(epoch.evaluation_seconds, 0.0);
}

TEST(TrainerMetricsTest, TheHashIsThatOfTheParameters) {
  EXPECT_THAT(told().returned.parameter_hash, testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(told().epochs.at(0).parameter_hash, told().epochs.at(1).parameter_hash);
  const json epoch = lines_of("epoch").at(1);
  EXPECT_EQ(epoch.at("parameter_hash").get<std::string>(), told().returned.parameter_hash);
}

TEST(TrainerMetricsTest, NotesSayWhatRuns) {
  const std::string notes = testing::PrintToString(told().notes);
  EXPECT_THAT(notes, HasSubstr("ranks 2 x 1 thread"));
  EXPECT_THAT(notes, HasSubstr("batch 24 in all, 12 per rank; 9 steps per epoch, 18 in all"));
  EXPECT_THAT(notes, HasSubstr("200 training and 50 test images of 28x28x1"));
}

TEST(TrainerMetricsTest, ProgressIsToldAfterEveryStep) {
  ASSERT_EQ(told().progress.size(), 18U);
  const Progress& last = told().progress.back();

  EXPECT_EQ(last.epoch, 2);
  EXPECT_EQ(last.epochs, 2);
  EXPECT_EQ(last.step, 9);
  EXPECT_EQ(last.steps, 9);
  EXPECT_EQ(last.seconds_left, 0.0);
  EXPECT_GT(told().progress.front().seconds_left, 0.0);
  EXPECT_GT(last.images_per_second, 0.0);
}

// Figures that the run above has none of, or none that are known beforehand.

/// The figures that rank 0 got from a run on two ranks.
struct Figures {
  std::vector<EpochMetrics> epochs = {};
  RunSummary end = {};
  std::vector<json> steps = {};  ///< their lines
};

Figures figures_of(const Experiment& experiment, const Dataset* dataset = nullptr) {
  const rondo::test::ScratchFolder scratch;
  Figures figures;
  TrainerOptions options;
  options.dataset = dataset;
  options.run_folder = scratch.path();
  options.observer.on_epoch = [&](const EpochMetrics& epoch) { figures.epochs.push_back(epoch); };
  options.observer.on_end = [&](const RunSummary& summary) { figures.end = summary; };
  rondo::test::World{2}.run(
      [&](transport::World& world) { static_cast<void>(train(world, experiment, options)); });
  std::ifstream stream(scratch.path() / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const json event = json::parse(line);
    if (event.at("event") == "step") figures.steps.push_back(event);
  }
  return figures;
}

/// Two epochs of two steps.
Experiment short_experiment(const std::string& model) {
  Experiment experiment = small_experiment(model, 12);
  experiment.data.training = 24;
  experiment.data.test = 10;
  experiment.train.max_steps = 0;
  experiment.train.epochs = 2;
  experiment.train.log_every = 1;
  return experiment;
}

// Running means and variances are averaged over the ranks before a model is evaluated.
TEST(TrainerFiguresTest, StatisticsAreReducedForEveryEvaluation) {
  for (const EpochMetrics& epoch : figures_of(short_experiment("resnet8")).epochs) {
    EXPECT_EQ(epoch.evaluation_reductions, 1U);
  }
}

// It has to be waited for: it sleeps twice as long as it has computed.
TEST(TrainerFiguresTest, ALateRankIsWaitedFor) {
  Experiment experiment = short_experiment("lenet5");
  experiment.inject.slow_ranks = {{1, 3.0}};
  const Figures figures = figures_of(experiment);

  ASSERT_EQ(figures.epochs.size(), 2U);
  double seconds = 0.0;
  double waiting = 0.0;
  double communicating = 0.0;
  for (const EpochMetrics& epoch : figures.epochs) {
    EXPECT_GT(epoch.wait_share, 0.0);
    seconds += epoch.seconds;
    waiting += epoch.seconds * epoch.wait_share;
    communicating += epoch.seconds * epoch.communication_share;
  }
  // Data that a scheme still moves after the last epoch count, too.
  EXPECT_GE(figures.end.training_seconds, seconds - 1e-9);
  EXPECT_GE(figures.end.wait_seconds, waiting - 1e-9);
  EXPECT_GE(figures.end.communication_seconds, communicating - 1e-9);
  EXPECT_LT(figures.end.wait_seconds + figures.end.communication_seconds,
            figures.end.training_seconds);
}

// So little is learned that no parameter changes: while it trains the model finds as many images of
// the training set as when it is evaluated on the same images.
TEST(TrainerFiguresTest, TrainingAccuracyIsThatOfTheImagesTrained) {
  Dataset dataset = make_synthetic({.training = 100, .test = 1});
  dataset.test = dataset.training;
  Experiment experiment = small_experiment("lenet5", 24);
  experiment.optimizer.learning_rate = 1e-30;
  experiment.train.max_steps = 0;
  experiment.train.epochs = 1;
  experiment.train.log_every = 1;
  const Figures figures = figures_of(experiment, &dataset);

  ASSERT_EQ(figures.epochs.size(), 1U);
  const EpochMetrics& epoch = figures.epochs[0];
  EXPECT_GT(epoch.accuracy, 0.0);
  EXPECT_NEAR(epoch.training_accuracy, epoch.accuracy, 1e-9);
  EXPECT_NEAR(epoch.loss, epoch.test_loss, 1e-5);
  ASSERT_EQ(figures.steps.size(), 5U);  // four of 24 images and one of 4
  double correct = 0.0;
  for (std::size_t i = 0; i < 5; ++i) {
    const double images = i < 4 ? 24.0 : 4.0;
    correct += figures.steps[i].at("training_accuracy").get<double>() / 100.0 * images;
  }
  EXPECT_NEAR(correct, epoch.accuracy, 1e-9);  // of 100 images
}

TEST(TrainerFiguresTest, StepLinesHaveTheRateOfTheirStep) {
  Experiment experiment = short_experiment("lenet5");
  experiment.optimizer.learning_rate = 0.5;
  experiment.optimizer.warmup_epochs = 1.0;
  experiment.optimizer.schedule = sync::Decay::steps;
  experiment.optimizer.milestones = {1};
  experiment.optimizer.factor = 0.25;
  std::vector<double> rates;
  for (const json& step : figures_of(experiment).steps) rates.push_back(step.at("learning_rate"));
  EXPECT_EQ(rates, (std::vector{0.25, 0.5, 0.125, 0.125}));
}

// Runs that cannot be: every rank ends, with an error that says why.

TEST(TrainerErrorsTest, ImpossibleConfigurationsAreRefusedOnAllRanks) {
  const std::pair<std::string, std::string> refusals[] = {
      {"train.global_batch=1", "a batch of 1 is smaller than the ranks (2)"},
      {"optimizer.name=lars grid.filter=2", "optimizer.name: \"lars\" needs the norm of conv"},
      {"update.scheme=sharded optimizer.clip_norm=1 grid.filter=2",
       "optimizer.clip_norm: under update.scheme = \"sharded\" needs all of"},
      {"update.scheme=k_step update.period=6 update.fragments=6",
       "update.fragments: 6 are more than the 5 layers"},
  };
  for (const auto& [settings, text] : refusals) {
    expect_refusal<ConfigError>(2, with(small_experiment(), settings), {}, HasSubstr(text));
  }
  expect_refusal<ConfigError>(2, small_experiment("lenet6"), {}, HasSubstr("lenet6"));
  expect_refusal<DataError>(
      2, with(small_experiment(), "data.name=fashion-mnist data.path=/nonexistent"), {},
      HasSubstr("/nonexistent"));
}

TEST(TrainerErrorsTest, ARunFolderThatCannotBeMadeIsToldOnAllRanks) {
  const rondo::test::ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
  std::ofstream(folder / "file") << "in the way";
  TrainerOptions options;
  options.run_folder = folder / "file" / "run";
  expect_refusal<ConfigError>(2, small_experiment(), options,
                              HasSubstr("file/run: the run folder cannot be made: "));
}

// Under cyclic updates one rank alone finds it, and its neighbours wait for the token.
TEST(TrainerErrorsTest, ALossThatIsNotFiniteEndsAllRanksAndNamesItsLayer) {
  const std::tuple<int, std::string, std::string> runs[] = {
      {4, "grid.filter=2", "NaN or Inf in step 2"},
      {4, "grid.filter=2", ", first in the output of layer "},
      {4, "grid.filter=2 train.accumulate=2", ", first in the output of layer "},
      {3, "update.scheme=cyclic", ", first in "},
  };
  for (const auto& [size, settings, text] : runs) {
    expect_refusal<NumericError>(
        size, with(small_experiment(), "optimizer.learning_rate=1e30 " + settings), {},
        HasSubstr(text));
  }
}

TEST(TrainerErrorsTest, AMetricsFileOnAFullDiskEndsAllRanksAlike) {
  const rondo::test::ScratchFolder scratch;
  TrainerOptions options;
  options.run_folder = scratch.path();
  std::filesystem::create_symlink("/dev/full", options.run_folder / "metrics.jsonl");
  expect_refusal<DataError>(2, small_experiment(), options, HasSubstr("No space left on device"));
}

// An epoch has 9 steps; the run ends after the 11th step.
TEST(TrainerSweepTest, EndsWhereItDivergesAndEvaluatesNothing) {
  Experiment experiment = small_experiment();
  experiment.train.epochs = 4;
  experiment.train.max_steps = 0;
  experiment.train.log_every = 1;
  const rondo::test::ScratchFolder folder;
  std::array<std::vector<double>, 2> losses;
  rondo::test::World{2}.run([&](transport::World& world) {
    std::vector<double>& own = losses.at(static_cast<std::size_t>(world.rank()));
    TrainerOptions options;
    options.diverges = [&](double loss) {
      own.push_back(loss);
      return own.size() == 11;
    };
    if (world.rank() == 0) options.run_folder = folder.path();
    options.observer.on_epoch = [](const EpochMetrics& /*metrics*/) { FAIL(); };
    train(world, experiment, options);
  });

  EXPECT_EQ(losses[0].size(), 11U);
  EXPECT_EQ(losses[0], losses[1]);
  std::ifstream stream(folder.path() / "metrics.jsonl");
  json last;
  for (std::string line; std::getline(stream, line);) last = json::parse(line);
  EXPECT_EQ(last.at("event"), "end");
  EXPECT_EQ(last.at("reason"), "diverged");
  EXPECT_EQ(last.at("steps"), 11);
  EXPECT_EQ(last.at("samples"), 200 + 2 * 24);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model.safetensors"));
}

/// Rank 3 of a grid of two replicas throws `error` after a step, when the others go on.
template <typename Error>
void expect_on_all_ranks_of_a_grid(const Error& error) {
  Experiment experiment = small_experiment();
  experiment.grid.filter = 2;
  rondo::test::World{4}.run([&](transport::World& world) {
    TrainerOptions options;
    options.on_step = [&] {
      if (world.rank() == 3) throw error;
    };
    EXPECT_THROW(train(world, experiment, options), Error) << "rank " << world.rank();
  });
}

TEST(TrainerErrorsTest, AnErrorOfOneRankOfAGridEndsAllAlike) {
  expect_on_all_ranks_of_a_grid(DataError("x"));
  expect_on_all_ranks_of_a_grid(std::runtime_error("x"));
}

}  // namespace
}  // namespace rondo::train::trainer_metrics_test
