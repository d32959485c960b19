// Runs that are stopped after a step and resumed end with the bits of one that was not.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <rondo/train/trainer.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "schemes/cyclic.hpp"
#include "support/error_text.hpp"
#include "support/sanitized.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/resumed_runs.hpp"
#include "train/tiny_network.hpp"
#include "weights/checksum.hpp"

namespace rondo::train::resume_test {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using rondo::test::contents;
using rondo::test::ScratchFolder;
using rondo::test::World;
using test::events;
using test::expect_refusal;
using test::experiment_of;
using test::run_in;
using test::RunEnd;
using test::steady_lines;
using test::with;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// All of them; under a sanitizer the last one.
std::vector<int> ends_of(const std::vector<int>& stops) {
  if (!rondo::test::sanitized) return stops;
  return {stops.back()};
}

enum class Compared : std::uint8_t { model, bytes, everything };

/// Runs of so many ranks that are stopped, and at which looks.
struct Case {
  int ranks;
  std::string scheme;
  std::string model;
  std::string settings;
  std::vector<int> stops;
  Compared compared = Compared::everything;
};

// Stops at each of these looks, resumes, and compares with a whole run. No step is done twice.
void expect_same_end(const Case& run) {
  const Experiment experiment = with(experiment_of(run.scheme, run.model), run.settings);
  const ScratchFolder whole;
  const RunEnd expected = run_in(whole.path(), run.ranks, experiment);
  for (const int stop : ends_of(run.stops)) {
    SCOPED_TRACE(run.scheme + " " + run.settings + " at look " + std::to_string(stop));
    const ScratchFolder cut;
    const RunEnd first = run_in(cut.path(), run.ranks, experiment, {}, stop);
    EXPECT_TRUE(first.stopped);
    const RunEnd resumed = run_in(cut.path(), run.ranks, experiment, "auto");

    EXPECT_EQ(resumed.last.parameter_hash, expected.last.parameter_hash);
    EXPECT_EQ(resumed.last.accuracy, expected.last.accuracy);
    EXPECT_EQ(contents(cut.path() / "model.safetensors"),
              contents(whole.path() / "model.safetensors"));
    if (run.compared == Compared::model) continue;
    EXPECT_EQ(resumed.last.bytes_sent, expected.last.bytes_sent);
    if (run.compared == Compared::bytes) continue;
    EXPECT_EQ(first.steps + resumed.steps, expected.steps);
    EXPECT_EQ(steady_lines(cut.path()), steady_lines(whole.path()));
  }
}

TEST(ResumeTest, RunsGoOnWithTheSameBits) {
  const std::string lazy = "update.warmup_epochs=0.2 update.lazy_layers=";
  const std::string momentum = "update.reduction_momentum=0.5 ";
  const std::string under_way =
      momentum + "update.period=3 update.local_period=3 update.overlap_steps=2";
  const std::string bf16 = "train.reduce_precision=bf16 ";
  const std::string groups = "grid.sample=2 grid.height=2";
  const std::string tiles = "grid.height=2 grid.filter=2";
  const Case cases[] = {
      {1, "synchronous", "lenet5", "", {3, 5}},
      {2, "synchronous", "resnet8", "", {1, 4, 5, 7, 11}},
      {2, "synchronous", "lenet5", bf16, {3, 5}},
      {2,
       "synchronous",
       "lenet5",
       "optimizer.name=adam optimizer.learning_rate=0.001 train.accumulate=2",
       {2, 6}},
      // The optimizer's state lies in shares.
      {2, "sharded", "resnet8", "", {4, 7}},
      {2, "sharded", "lenet5", bf16, {3, 5}},
      {3, "sharded", "resnet8", "optimizer.name=adam", {5}},
      // Within a window.
      {2, "lazy", "resnet8", lazy + "3 update.max_interval=4", {1, 2, 3, 4, 6, 7}},
      {2, "lazy", "lenet5", bf16 + lazy + "2", {3, 5}},
      // Between averages.
      {2, "k_step", "resnet8", momentum, {1, 3, 5, 6}},
      {2, "hierarchical", "resnet8", momentum, {1, 3, 5, 6}},
      {2, "k_step", "resnet8", momentum + "update.period=4 update.fragments=3", {1, 3, 5, 6}},
      {2, "k_step", "lenet5", "update.period=5 update.period_policy=adaptive", {1, 4, 6}},
      {2,
       "k_step",
       "resnet8",
       "update.period=3 update.outer_optimizer=adam update.outer_rate=0.01",
       {1, 3, 4, 6}},
      // With an average under way: what moves while a checkpoint is written counts as no
      // training.
      {2, "k_step", "resnet8", under_way, {1, 3, 4, 6}, Compared::model},
      {2, "hierarchical", "resnet8", under_way, {1, 3, 4, 6}, Compared::model},
      // On grids, also of two tiles of two ranks, each of which has a part of the filters.
      {4, "synchronous", "resnet8", groups, {3, 5}},
      {4, "k_step", "resnet8", groups, {3, 5}},
      {4, "hierarchical", "resnet8", groups, {3, 5}},
      {4, "synchronous", "resnet8", tiles, {3, 5}},
      // How many bytes of an allgather that goes on into the next step count for which of the two
      // depends on when they leave.
      {4, "sharded", "resnet8", tiles, {3}, Compared::bytes},
  };
  for (const Case& run : cases) expect_same_end(run);
}

// On the grid that was chosen when they began.
TEST(ResumeTest, SoDoRunsWhoseGridThePlannerChooses) {
  Experiment experiment = experiment_of("synchronous");
  experiment.grid.plan = PlanChoice::automatic;
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 4, experiment, {}, 5).stopped);
  const RunEnd resumed = run_in(folder.path(), 4, experiment, "auto");

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("resumed from")));
  EXPECT_THAT(resumed.notes, Not(Contains(HasSubstr("were others"))));
  EXPECT_EQ(resumed.last.epoch, 3);
}

// Both convolutions can be lazy, and the first one always is. The checkpoint is made to say the
// number that was not measured; within the warm-up it has no state of a window that would not
// fit.
TEST(ResumeTest, LazyLayersStayThoseThatWereMeasured) {
  const Experiment experiment = test::tiny_experiment("update.scheme=lazy");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 3).stopped);
  const fs::path checkpoint = list_checkpoints(folder.path()).front();
  Manifest manifest = read_manifest(checkpoint);
  const std::size_t measured = manifest.lazy_convolutions;
  ASSERT_THAT(measured, AnyOf(1U, 2U));
  manifest.lazy_convolutions = 3 - measured;
  std::ofstream(checkpoint / "manifest.json") << to_json(manifest);
  run_in(folder.path(), 2, experiment, "auto");

  EXPECT_THAT(events(folder.path(), "start").at(0)["lazy_layers"], SizeIs(measured));
  EXPECT_THAT(events(folder.path(), "resume").at(0)["lazy_layers"], SizeIs(3 - measured));
}

TEST(ResumeTest, CyclicRunsGoOnAfterAnEpochWhereTurnsAreReplayed) {
  const ScratchFolder recorded;
  Experiment experiment = experiment_of("cyclic");
  experiment.train.max_steps = 0;
  // However late a rank gets its turn, no push ends all epochs at once.
  experiment.update.minibatch_cap = 2;
  run_in(recorded.path(), 2, experiment);
  experiment.update.replay = recorded.path() / "token_trace.jsonl";
  const ScratchFolder whole;
  const RunEnd expected = run_in(whole.path(), 2, experiment);

  const ScratchFolder cut;
  ASSERT_TRUE(run_in(cut.path(), 2, experiment, {}, 1).stopped);  // asked at the epoch's end
  // The trace is beside the name of the checkpoint, not beside what it leads to.
  const ScratchFolder room;
  const fs::path checkpoint = list_checkpoints(cut.path()).front();
  fs::rename(checkpoint, room.path() / "moved");
  fs::create_directory_symlink(room.path() / "moved", checkpoint);
  const ScratchFolder elsewhere;
  run_in(elsewhere.path(), 2, experiment, cut.path());
  const RunEnd resumed = run_in(cut.path(), 2, experiment, "auto");

  EXPECT_EQ(resumed.last.parameter_hash, expected.last.parameter_hash);
  EXPECT_EQ(resumed.last.epoch, expected.last.epoch);
  const std::string turns = contents(whole.path() / "token_trace.jsonl");
  EXPECT_EQ(contents(cut.path() / "token_trace.jsonl"), turns);
  EXPECT_EQ(contents(elsewhere.path() / "token_trace.jsonl"), turns);
}

TEST(ResumeTest, ARunThatIsCompleteIsLeftAsItIs) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_epochs = 1;
  for (const std::int64_t steps : {10, 12}) {  // at the end of an epoch, and within one
    const ScratchFolder folder;
    experiment.train.max_steps = steps;
    const RunEnd whole = run_in(folder.path(), 2, experiment);
    const auto lines = steady_lines(folder.path());
    const std::string model = contents(folder.path() / "model.safetensors");

    const RunEnd again = run_in(folder.path(), 2, experiment, "auto");
    EXPECT_EQ(again.steps, 0);
    EXPECT_THAT(again.notes, Contains(HasSubstr("resumed from")));
    EXPECT_EQ(again.last.parameter_hash, whole.last.parameter_hash);
    EXPECT_EQ(steady_lines(folder.path()), lines);
    EXPECT_EQ(contents(folder.path() / "model.safetensors"), model);
  }
}

TEST(ResumeTest, ALongerRunGoesOnAsIfItHadBeenAskedForAtOnce) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_steps = 100;
  const ScratchFolder whole;
  const RunEnd expected = run_in(whole.path(), 2, experiment);
  const ScratchFolder cut;
  experiment.train.max_steps = 7;
  run_in(cut.path(), 2, experiment);
  experiment.train.max_steps = 12;

  const RunEnd longer = run_in(cut.path(), 2, experiment, "auto");
  EXPECT_EQ(longer.steps, 12 - 7);
  EXPECT_EQ(longer.last.parameter_hash, expected.last.parameter_hash);
}

TEST(ResumeTest, CheckpointsComeAsOftenAsTheConfigurationSays) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_steps = 3;
  experiment.checkpoint.keep = 3;
  const ScratchFolder folder;
  run_in(folder.path(), 2, experiment);

  EXPECT_THAT(list_checkpoints(folder.path()),
              ElementsAre(checkpoint_folder(folder.path(), 12), checkpoint_folder(folder.path(), 9),
                          checkpoint_folder(folder.path(), 6)));
}

// The model has room where the checkpoint had none.
TEST(ResumeTest, ARunWhoseLastCheckpointCannotBeWrittenLeavesItsModel) {
  for (const int writer : {0, 1}) {
    const ScratchFolder folder;
    Experiment experiment = experiment_of("k_step");
    experiment.checkpoint.every_epochs = 3;
    const fs::path last = unfinished_folder(folder.path(), 12);
    const fs::path in_the_way = last / ("progress-" + std::to_string(writer) + ".bin");
    fs::create_directories(in_the_way / "folder");
    World{2}.run([&](transport::World& world) {
      TrainerOptions options;
      options.run_folder = world.rank() == 0 ? folder.path() : fs::path();
      // The writer removes what it finds when it begins.
      options.on_step = [&] { fs::create_directories(in_the_way / "folder"); };
      EXPECT_THAT(rondo::test::error_text<DataError>([&] { train(world, experiment, options); }),
                  HasSubstr("cannot be written"));
    });

    EXPECT_TRUE(fs::exists(folder.path() / "model.safetensors")) << writer;
    EXPECT_TRUE(list_checkpoints(folder.path()).empty()) << writer;
  }
}

// A launcher's signals come to one rank a little later than to another.
TEST(ResumeTest, ARequestThatComesToAllRanksIsAnsweredOnce) {
  const ScratchFolder folder;
  World{2}.run([&](transport::World& world) {
    int looks = 0;
    TrainerOptions options;
    options.run_folder = world.rank() == 0 ? folder.path() : fs::path();
    options.request = [&] {
      return ++looks == 2 + world.rank() ? RunRequest::checkpoint : RunRequest::none;
    };
    train(world, experiment_of("synchronous"), options);
  });

  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(checkpoint_folder(folder.path(), 12),
                                                           checkpoint_folder(folder.path(), 2)));
}

TEST(ResumeTest, WhatRanksHoldAlikeIsStoredOnce) {
  Experiment experiment = experiment_of("synchronous", "resnet8");
  experiment.checkpoint.every_steps = 7;
  const ScratchFolder folder;
  run_in(folder.path(), 3, experiment);
  const Manifest manifest = read_manifest(checkpoint_folder(folder.path(), 7));
  std::vector<std::string> names;
  for (const CheckpointFile& file : manifest.files) names.push_back(file.name);

  EXPECT_THAT(names, ElementsAre("parameters-0.bin", "statistics-0.bin", "statistics-1.bin",
                                 "statistics-2.bin", "scheme-0.bin", "progress-0.bin",
                                 "progress-1.bin", "progress-2.bin", "evaluated-0.bin"));
}

// The second step's loss is not finite. It is noticed before the update, or where replicas do not
// meet in every step, before the next one.
TEST(ResumeTest, ALossThatIsNotFiniteNamesTheLayerAndKeepsTheCheckpointBefore) {
  for (const char* scheme : {"synchronous", "k_step"}) {
    Experiment experiment = experiment_of(scheme);
    experiment.optimizer.learning_rate = 1e30;
    experiment.checkpoint.every_steps = 1;
    experiment.checkpoint.keep = 5;
    const ScratchFolder folder;
    expect_refusal<NumericError>(2, experiment, {.run_folder = folder.path()},
                                 HasSubstr("in step 2, first in "));

    // Both sides are of whole epochs.
    const json end = events(folder.path(), "end").front();
    EXPECT_THAT(end["reason"], HasSubstr("in step 2, first in "));
    EXPECT_EQ(end["synchronous_reductions"], 0);
    EXPECT_EQ(end["synchronous_bytes_sent"], end["bytes_sent"]);
    EXPECT_THAT(list_checkpoints(folder.path()), Contains(checkpoint_folder(folder.path(), 1)));
    EXPECT_THAT(list_checkpoints(folder.path()),
                Not(Contains(checkpoint_folder(folder.path(), 3))));
  }
}

TEST(ResumeTest, TheBestOneIsKept) {
  Experiment experiment = experiment_of("synchronous");
  experiment.train.max_steps = 0;
  experiment.checkpoint.best = true;
  experiment.checkpoint.keep = 1;
  const ScratchFolder folder;
  run_in(folder.path(), 1, experiment);
  double best = -1.0;
  for (const json& event : events(folder.path(), "epoch")) {
    best = std::max(best, event["accuracy"].get<double>());
  }
  double kept = -1.0;
  for (const fs::path& checkpoint : list_checkpoints(folder.path())) {
    kept = std::max(kept, read_manifest(checkpoint).accuracy.value_or(-1.0));
  }

  EXPECT_EQ(kept, best);
  EXPECT_THAT(list_checkpoints(folder.path()),
              Contains(checkpoint_folder(folder.path(), 15)));  // the newest
}

// They are newer than its own, and keep = 1 would leave them alone.
TEST(ResumeTest, ARunLeavesCheckpointsOfAnotherOneInItsFolderAside) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_epochs = 1;
  experiment.checkpoint.keep = 1;
  const ScratchFolder whole;
  const RunEnd expected = run_in(whole.path(), 2, experiment);
  const ScratchFolder folder;
  Experiment other = experiment;
  other.train.seed = 7;
  run_in(folder.path(), 2, other);

  ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 3).stopped);
  const RunEnd resumed = run_in(folder.path(), 2, experiment, "auto");

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("step-3: step 3")));
  EXPECT_EQ(resumed.last.parameter_hash, expected.last.parameter_hash);
  EXPECT_EQ(steady_lines(folder.path()), steady_lines(whole.path()));
}

// So is what a run has done that was asked to stop.
TEST(ResumeTest, AStoppedRunTellsWhatItHasDone) {
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 2, experiment_of("synchronous"), {}, 3).stopped);

  const json end = events(folder.path(), "end").back();
  EXPECT_EQ(end["samples"], 24);
  EXPECT_EQ(end["global_reductions"], 3);
  EXPECT_GT(end["training_seconds"], 0.0);
}

// The model of a checkpoint is the one whose accuracy it tells, also where replicas hold others.
TEST(ResumeTest, ACheckpointHasTheModelThatWasEvaluated) {
  for (const char* scheme : {"synchronous", "lazy", "k_step", "hierarchical", "cyclic"}) {
    Experiment experiment = experiment_of(scheme, "resnet8");
    experiment.train.max_steps = 0;
    experiment.train.epochs = 2;
    experiment.checkpoint.every_epochs = 1;
    experiment.update.lazy_layers = "3";
    experiment.update.max_interval = 4;
    experiment.update.period = 3;
    experiment.update.local_period = 3;
    if (scheme != std::string("cyclic")) experiment.update.overlap_steps = 0;
    if (scheme == std::string("k_step")) {
      experiment.update.overlap_steps = 2;
      experiment.update.reduction_momentum = 0.5;
    }
    const ScratchFolder folder;
    const RunEnd end = run_in(folder.path(), 2, experiment);
    const fs::path newest = list_checkpoints(folder.path()).front();

    const ModelWeights weights =
        weights_of_checkpoint(newest, read_manifest(newest), model_of(experiment));

    EXPECT_EQ(hash_of({weights.parameters}), end.last.parameter_hash) << scheme;
  }
}

TEST(ResumeTest, ACompleteRunKeepsItsModelOnOtherRanks) {
  for (const char* scheme : {"synchronous", "lazy", "k_step"}) {
    Experiment experiment = experiment_of(scheme, "resnet8");
    experiment.checkpoint.every_epochs = 1;
    experiment.update.lazy_layers = "3";
    experiment.update.max_interval = 4;
    const ScratchFolder folder;
    run_in(folder.path(), 2, experiment);
    const std::string model = contents(folder.path() / "model.safetensors");

    run_in(folder.path(), 4, experiment, "auto");

    EXPECT_EQ(contents(folder.path() / "model.safetensors"), model) << scheme;
  }
}

// The folder gets a checkpoint as soon as the run goes on there, and nothing is left to train.
TEST(ResumeTest, SoItDoesInAnotherFolderFromWhichItIsResumedAgain) {
  Experiment experiment = experiment_of("synchronous", "resnet8");
  experiment.train.max_steps = 10;  // the end of an epoch
  experiment.checkpoint.every_epochs = 1;
  const ScratchFolder folder;
  const ScratchFolder other;
  run_in(folder.path(), 2, experiment);
  const std::string model = contents(folder.path() / "model.safetensors");

  run_in(other.path(), 4, experiment, checkpoint_folder(folder.path(), 10));
  EXPECT_EQ(contents(other.path() / "model.safetensors"), model);
  run_in(other.path(), 4, experiment, "auto");
  EXPECT_EQ(contents(other.path() / "model.safetensors"), model);
}

// As from within the folder of a run's checkpoints.
TEST(ResumeTest, ACheckpointMayHaveARelativePath) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 4).stopped);
  const fs::path before = fs::current_path();
  fs::current_path(checkpoints_in(folder.path()));
  const RunEnd resumed = run_in(folder.path(), 2, experiment, "step-4");
  fs::current_path(before);

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("resumed from step-4")));
  EXPECT_THAT(events(folder.path(), "end"), SizeIs(1));
}

// An average arrives two steps later than the round that it is of has ended.
TEST(ResumeTest, ARoundTellsItsOwnLastStep) {
  Experiment experiment = experiment_of("k_step");
  experiment.update.overlap_steps = 2;
  const ScratchFolder folder;
  run_in(folder.path(), 2, experiment);
  std::vector<int> last;
  for (const json& event : events(folder.path(), "round")) last.push_back(event["total_step"]);
  EXPECT_THAT(last, ElementsAre(4, 8, 12));
}

TEST(ResumeTest, ATraceWithAGapIsNotReplayed) {
  const ScratchFolder folder;
  Experiment experiment = experiment_of("cyclic");
  experiment.update.minibatch_cap = 2;
  experiment.checkpoint.every_epochs = 1;
  experiment.train.max_steps = 5;
  run_in(folder.path(), 2, experiment);
  fs::remove(folder.path() / "token_trace.jsonl");
  experiment.train.max_steps = 0;

  EXPECT_THAT(run_in(folder.path(), 2, experiment, "auto").notes,
              Contains(HasSubstr("without the turns up to the checkpoint it serves no replay")));

  const fs::path trace = folder.path() / "token_trace.jsonl";
  EXPECT_THAT(
      rondo::test::error_text<ConfigError>([&] { static_cast<void>(read_token_trace(trace, 2)); }),
      HasSubstr("turns of its run are missing"));
}

// Which ends within its second epoch, where all ranks are parked.
TEST(ResumeTest, ALongerCyclicRunGoesOnWithItsEpoch) {
  for (const double warm_up : {0.0, 1.0}) {
    Experiment experiment = experiment_of("cyclic");
    experiment.update.warmup_epochs = warm_up;
    experiment.update.minibatch_cap = 2;  // no push ends an epoch and the next one at once
    experiment.checkpoint.every_epochs = 1;
    const ScratchFolder folder;
    for (const std::int64_t steps : {3, 7, 0}) {
      experiment.train.max_steps = steps;
      run_in(folder.path(), 2, experiment, "auto");
    }

    std::vector<std::int64_t> epochs;
    for (const json& event : events(folder.path(), "epoch")) epochs.push_back(event["epoch"]);
    EXPECT_THAT(epochs, ElementsAre(1, 2, 3)) << warm_up;
  }
}

}  // namespace
}  // namespace rondo::train::resume_test
