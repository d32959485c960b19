// Which checkpoint a resumed run goes on from, and what it refuses, so that nothing is lost.

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/run_directory.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/weights.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/resumed_runs.hpp"
#include "trainer/run_log.hpp"
#include "trainer/run_state.hpp"
#include "weights/checksum.hpp"

namespace rondo::train::resume_choice_test {
namespace {

namespace fs = std::filesystem;

using rondo::test::ScratchFolder;
using rondo::test::World;
using test::contents;
using test::expect_refusal;
using test::experiment_of;
using test::run_in;
using test::RunEnd;
using test::steady_lines;
using test::with;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

TEST(ResumeChoiceTest, ADamagedCheckpointIsSkippedWithItsReason) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_steps = 4;
  const ScratchFolder folder;
  const RunEnd whole = run_in(folder.path(), 2, experiment);
  const fs::path newest = checkpoint_folder(folder.path(), 12);
  std::string bytes = contents(newest / "scheme-0.bin");
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  std::ofstream(newest / "scheme-0.bin", std::ios::binary) << bytes;
  fs::remove(checkpoint_folder(folder.path(), 8) / "parameters-0.bin");
  const RunEnd resumed = run_in(folder.path(), 2, experiment, "auto");

  EXPECT_THAT(resumed.notes,
              AllOf(Contains(AllOf(HasSubstr("skipped step-12"), HasSubstr("scheme-0.bin"),
                                   HasSubstr("checksum"))),
                    Contains(AllOf(HasSubstr("skipped step-8"), HasSubstr("parameters-0.bin"))),
                    Contains(HasSubstr("step 4, epoch 1"))));
  EXPECT_EQ(resumed.last.parameter_hash, whole.last.parameter_hash);
  EXPECT_EQ(contents(newest / "scheme-0.bin").size(), bytes.size());
  EXPECT_NO_THROW(static_cast<void>(read_manifest(newest)));
}

TEST(LearningRateNotesTest, SayWhereItIsNotWhatAUserMayExpect) {
  Experiment experiment = experiment_of("synchronous");
  experiment.train.epochs = 2;
  experiment.train.max_steps = 0;
  experiment.checkpoint.every_epochs = 1;
  const auto about_rates = Contains(HasSubstr("learning rate: "));
  const ScratchFolder folder;
  EXPECT_THAT(run_in(folder.path(), 1, experiment).notes, testing::Not(about_rates));
  experiment.train.epochs = 4;
  EXPECT_THAT(run_in(folder.path(), 1, experiment, checkpoint_folder(folder.path(), 10)).notes,
              Contains("learning rate: step 10 had 0.00122, and step 11 has 0.025, because the "
                       "schedule is that of a run of 4 epochs now and not of 2 (train.epochs)"));

  Experiment warm = experiment_of("synchronous");
  warm.optimizer.warmup_epochs = 5;
  EXPECT_THAT(run_in(ScratchFolder().path(), 1, warm).notes,
              Contains("learning rate: the run ends within its warm-up, at 0.024 of 0.05 "
                       "(optimizer.warmup_epochs)"));

  Experiment steps = experiment_of("synchronous");
  steps.optimizer.schedule = sync::Decay::steps;
  steps.optimizer.milestones = {80, 120};
  EXPECT_THAT(run_in(ScratchFolder().path(), 1, steps).notes,
              Contains("learning rate: the run ends before the first of optimizer.milestones"));
  steps.optimizer.milestones = {80, 1};
  EXPECT_THAT(run_in(ScratchFolder().path(), 1, steps).notes, testing::Not(about_rates));
}

// Perhaps a disk of one host is missing: what there is must not be removed.
TEST(ResumeChoiceTest, WhereNoCheckpointCanBeUsedTheRunDoesNotBeginAnew) {
  Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 1, experiment, {}, 3).stopped);
  const fs::path checkpoint = checkpoint_folder(folder.path(), 3);
  fs::remove(checkpoint / "parameters-0.bin");
  const std::string metrics = contents(folder.path() / "metrics.jsonl");

  TrainerOptions options{.run_folder = folder.path(), .resume = "auto"};
  // The error alone says what is wrong with the only one.
  options.observer.on_note = [](const std::string& note) {
    EXPECT_THAT(note, testing::Not(HasSubstr("skipped")));
  };
  expect_refusal<DataError>(
      1, experiment, options,
      AllOf(HasSubstr("parameters-0.bin"), HasSubstr("to begin the run anew, remove")));

  EXPECT_EQ(contents(folder.path() / "metrics.jsonl"), metrics);
  EXPECT_NO_THROW(static_cast<void>(read_manifest(checkpoint)));
}

TEST(ResumeChoiceTest, ALogThatWasLostBeginsAnew) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 1, experiment, {}, 3).stopped);
  fs::remove(folder.path() / "metrics.jsonl");

  run_in(folder.path(), 1, experiment, "auto");

  const std::string metrics = contents(folder.path() / "metrics.jsonl");
  EXPECT_TRUE(metrics.starts_with(R"({"event":"start")")) << metrics.substr(0, 80);
  EXPECT_THAT(metrics, HasSubstr(R"({"event":"resume")"));
}

// A change of a run that was stopped; it returns the path to resume.
struct Change {
  std::string what;
  std::function<fs::path(const fs::path& folder, Experiment& experiment)> apply;
};

TEST(ResumeChoiceTest, ARunGoesOnWhereNamesAndWordsAreOthers) {
  const ScratchFolder elsewhere;
  const Change changes[] = {
      {"a path that ends in a slash",
       [](const fs::path& run, auto&) { return list_checkpoints(run).front().string() + "/"; }},
      {"a link to the checkpoint",
       [&](const fs::path& run, auto&) {
         const fs::path checkpoint = list_checkpoints(run).front();
         fs::copy(checkpoint, elsewhere.path() / "moved");
         fs::remove_all(checkpoint);
         fs::create_directory_symlink(elsewhere.path() / "moved", checkpoint);
         return "auto";
       }},
      {"data that are read in another way",
       [](auto&, Experiment& experiment) {
         return experiment.data.broken = BrokenImages::skip, "auto";
       }},
      {"the same grid in other words",
       [](auto&, Experiment& experiment) { return experiment.grid.sample = 2, "auto"; }},
  };
  const RunEnd whole = run_in(ScratchFolder().path(), 2, experiment_of("k_step"));
  for (const auto& [what, apply] : changes) {
    SCOPED_TRACE(what);
    Experiment experiment = experiment_of("k_step");
    const ScratchFolder scratch;
    const fs::path folder = scratch.path() / "a\nb";  // a name may have several lines
    ASSERT_TRUE(run_in(folder, 2, experiment, {}, 3).stopped);
    const fs::path checkpoint = list_checkpoints(folder).front();

    const RunEnd resumed = run_in(folder, 2, experiment, apply(folder, experiment));

    EXPECT_THAT(resumed.notes, Contains(HasSubstr("resumed from " + checkpoint.string())));
    EXPECT_EQ(resumed.last.parameter_hash, whole.last.parameter_hash);
  }
}

// The settings of a run that is stopped at a look (0: it is complete), and those of one that is
// refused then.
struct Refused {
  std::string then;
  int stop_at;
  std::string now;
  testing::Matcher<std::string> text;
};

TEST(ResumeChoiceTest, ARefusedRunLeavesTheFolderAsItWas) {
  const Refused runs[] = {
      {"", 0, "", HasSubstr("holds a run that has completed")},
      {"", 3, "optimizer.learning_rate=0.5",
       AllOf(HasSubstr("optimizer.learning_rate"), HasSubstr("0.5"), HasSubstr("0.05"))},
      // The model is named, and not a key of the grid that the planner had chosen for it.
      {"model.name=resnet8 grid.height=2 grid.layers={'layer1.*'='height=2'}", 3, "grid.plan=auto",
       HasSubstr("model.name")},
      {"", 9, "train.epochs=1",
       AllOf(HasSubstr("train.epochs, train.max_steps: the run ends after step 5"),
             HasSubstr("is of step 8; let it train for longer"))},
  };
  for (const auto& [then, stop_at, now, text] : runs) {
    SCOPED_TRACE(now);
    const ScratchFolder folder;
    const Experiment first = with(experiment_of("synchronous"), then);
    ASSERT_EQ(run_in(folder.path(), 2, first, {}, stop_at).stopped, stop_at > 0);
    const std::string metrics = contents(folder.path() / "metrics.jsonl");
    const std::string model = contents(folder.path() / "model.safetensors");

    expect_refusal<ConfigError>(2, with(experiment_of("synchronous"), now),
                                {.run_folder = folder.path(), .resume = "auto"}, text);

    EXPECT_EQ(contents(folder.path() / "metrics.jsonl"), metrics);
    EXPECT_EQ(contents(folder.path() / "model.safetensors"), model);
  }
}

TEST(ResumeChoiceTest, TheBestOneIsFoundBesideADamagedOne) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_epochs = 1;
  experiment.checkpoint.keep = 9;
  const ScratchFolder folder;
  run_in(folder.path(), 1, experiment);
  std::vector<fs::path> checkpoints = resume_candidates(folder.path(), "auto");
  ASSERT_GE(checkpoints.size(), 2U);
  fs::remove(checkpoints.front() / "manifest.json");

  const fs::path best = find_checkpoint(folder.path(), "best");

  EXPECT_NE(best, checkpoints.front());
  EXPECT_NO_THROW(static_cast<void>(read_manifest(best)));
}

TEST(ResumeChoiceTest, AFolderBelongsToOneRunAtATime) {
  const ScratchFolder folder;
  const auto wait = [&] {
    return DirectoryLock::wait(folder.path(), std::chrono::milliseconds(0));
  };
  {
    const DirectoryLock run = wait();
    EXPECT_TRUE(DirectoryLock(folder.path()).is_in_use());
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { static_cast<void>(wait()); }),
                HasSubstr("another run is writing there"));
  }
  EXPECT_FALSE(DirectoryLock(folder.path()).is_in_use());
}

TEST(ResumeChoiceTest, ALogThatIsTooShortIsToldAndKeepsWholeLines) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 1, experiment, {}, 6).stopped);
  const fs::path log = folder.path() / "metrics.jsonl";
  const auto bytes = read_manifest(checkpoint_folder(folder.path(), 5)).metrics_bytes;
  const std::string start = contents(log).substr(0, contents(log).find('\n') + 1);
  fs::resize_file(log, start.size() + 7);

  const RunEnd resumed = run_in(folder.path(), 1, experiment, "auto");

  EXPECT_THAT(resumed.notes,
              Contains("metrics.jsonl has " + std::to_string(start.size() + 7) + " of " +
                       std::to_string(bytes) + " bytes: events up to step 5 are missing"));
  EXPECT_TRUE(contents(log).starts_with(start + R"({"event":"resume")"));
}

TEST(ResumeChoiceTest, WithoutACheckpointTheRunBegins) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  const RunEnd first = run_in(folder.path(), 2, experiment);
  const auto lines = steady_lines(folder.path());
  const std::string metrics = contents(folder.path() / "metrics.jsonl");
  fs::resize_file(folder.path() / "metrics.jsonl", metrics.rfind("{\"event\":\"end\""));
  const RunEnd again = run_in(folder.path(), 2, experiment, "auto");

  EXPECT_THAT(again.notes, Contains(HasSubstr("the run begins")));
  EXPECT_EQ(again.last.parameter_hash, first.last.parameter_hash);
  EXPECT_EQ(steady_lines(folder.path()), lines);
}

// Two were started at once, and this one has waited until the other one had ended.
TEST(ResumeChoiceTest, ARunDoesNotBeginWhereAnotherOneHasBegunMeanwhile) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  run_in(folder.path(), 2, experiment);
  const std::string metrics = contents(folder.path() / "metrics.jsonl");

  TrainerOptions options{.run_folder = folder.path()};
  options.keep_earlier_run = true;
  expect_refusal<ConfigError>(2, experiment, options,
                              HasSubstr("already holds a run's metrics.jsonl"));

  EXPECT_EQ(contents(folder.path() / "metrics.jsonl"), metrics);
}

// Or the next --resume auto would go back to the step at which it was stopped.
TEST(ResumeChoiceTest, ARunThatWasStoppedLeavesACheckpointAtItsEnd) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 1, experiment, {}, 3).stopped);

  const RunEnd whole = run_in(folder.path(), 1, experiment, "auto");
  const RunEnd again = run_in(folder.path(), 1, experiment, "auto");

  EXPECT_THAT(again.notes, Not(Contains(HasSubstr("step 3"))));
  EXPECT_EQ(again.last.parameter_hash, whole.last.parameter_hash);
}

TEST(ResumeChoiceTest, CheckpointsOfARunWhoseLogIsGoneAreNotOnesOfTheNext) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_steps = 2;
  const ScratchFolder source;
  const ScratchFolder target;
  ASSERT_TRUE(run_in(source.path(), 1, experiment, {}, 5).stopped);
  ASSERT_TRUE(run_in(target.path(), 1, experiment, {}, 3).stopped);
  fs::remove(target.path() / "metrics.jsonl");

  test::run_until_killed(target.path(), 1, experiment, checkpoint_folder(source.path(), 5), 1);

  EXPECT_THAT(list_checkpoints(target.path()),
              testing::ElementsAre(checkpoint_folder(target.path(), 5)));
}

TEST(ResumeChoiceTest, ACheckpointOfAnotherRunLeavesAFolderWithARunAlone) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder source;
  const ScratchFolder target;
  ASSERT_TRUE(run_in(source.path(), 1, experiment, {}, 3).stopped);
  run_in(target.path(), 1, experiment);
  const std::string metrics = contents(target.path() / "metrics.jsonl");

  expect_refusal<ConfigError>(
      1, experiment, {.run_folder = target.path(), .resume = checkpoint_folder(source.path(), 3)},
      testing::_);
  EXPECT_EQ(contents(target.path() / "metrics.jsonl"), metrics);
  const ScratchFolder fresh;
  EXPECT_FALSE(run_in(fresh.path(), 1, experiment, checkpoint_folder(source.path(), 3))
                   .last.parameter_hash.empty());
}

// A run that was resumed at an older checkpoint and killed leaves newer ones, which are not its
// own.
TEST(ResumeChoiceTest, ACheckpointOfAPastThatWasLeftIsNotTaken) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_steps = 4;
  const ScratchFolder whole;
  const RunEnd expected = run_in(whole.path(), 1, experiment);
  const ScratchFolder folder;
  run_in(folder.path(), 1, experiment);
  test::run_until_killed(folder.path(), 1, experiment, checkpoint_folder(folder.path(), 4), 2);
  EXPECT_EQ(list_checkpoints(folder.path()).front(), checkpoint_folder(folder.path(), 4));

  const RunEnd resumed = run_in(folder.path(), 1, experiment, "auto");

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("step 4, epoch 1")));
  EXPECT_EQ(resumed.last.parameter_hash, expected.last.parameter_hash);
  EXPECT_EQ(steady_lines(folder.path()).size(), steady_lines(whole.path()).size());
  EXPECT_THAT(list_checkpoints(folder.path()), testing::SizeIs(3));
}

TEST(ResumeChoiceTest, ARunFromAnotherFoldersCheckpointHasOneOfItsOwnAtOnce) {
  const Experiment experiment = experiment_of("synchronous");
  const RunEnd whole = run_in(ScratchFolder().path(), 1, experiment);
  const ScratchFolder source;
  const ScratchFolder target;
  ASSERT_TRUE(run_in(source.path(), 1, experiment, {}, 3).stopped);
  test::run_until_killed(target.path(), 1, experiment, checkpoint_folder(source.path(), 3), 1);
  const auto epoch_so_far = [](const fs::path& run) {
    const fs::path checkpoint = checkpoint_folder(run, 3);
    const Manifest manifest = read_manifest(checkpoint);
    return read_run_state(read_checked(checkpoint, manifest.file_of(0, Part::progress))).traffic;
  };
  EXPECT_NEAR(epoch_so_far(target.path()).seconds, epoch_so_far(source.path()).seconds, 60.0);
  EXPECT_EQ(epoch_so_far(target.path()).bytes, epoch_so_far(source.path()).bytes);

  const RunEnd resumed = run_in(target.path(), 1, experiment, "auto");

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("step 3, epoch 1")));
  EXPECT_EQ(resumed.last.parameter_hash, whole.last.parameter_hash);
}

// With the model whose accuracy it tells, here the outer step of an average that is under way.
TEST(ResumeChoiceTest, ItsFirstCheckpointHasWhatWasEvaluated) {
  Experiment experiment = experiment_of("k_step", "resnet8");
  experiment.update.period = 3;
  experiment.update.overlap_steps = 2;
  experiment.update.reduction_momentum = 0.5;
  const ScratchFolder source;
  const ScratchFolder target;
  constexpr int end_of_epoch = 6;  // the look behind its five steps
  ASSERT_TRUE(run_in(source.path(), 2, experiment, {}, end_of_epoch).stopped);
  test::run_until_killed(target.path(), 2, experiment, checkpoint_folder(source.path(), 5), 1);
  const fs::path first = checkpoint_folder(target.path(), 5);

  const ModelWeights weights =
      weights_of_checkpoint(first, read_manifest(first), model_of(experiment));

  EXPECT_EQ(hash_of({weights.parameters}),
            test::events(source.path(), "epoch").back()["parameter_hash"].get<std::string>());
}

// Its replicas hold others, which nobody needs then.
TEST(ResumeChoiceTest, WhatWasEvaluatedIsTakenWithoutTheParametersOfReplicas) {
  Experiment experiment = experiment_of("k_step");
  experiment.update.period = 3;
  experiment.checkpoint.every_epochs = 1;
  const ScratchFolder folder;
  run_in(folder.path(), 2, experiment);
  const fs::path checkpoint = checkpoint_folder(folder.path(), 5);
  for (const CheckpointFile& file : read_manifest(checkpoint).files) {
    if (file.name.starts_with("parameters-")) fs::remove(checkpoint / file.name);
  }

  const ModelWeights weights =
      weights_of_checkpoint(checkpoint, read_manifest(checkpoint), model_of(experiment));

  EXPECT_EQ(hash_of({weights.parameters}),
            test::events(folder.path(), "epoch").front()["parameter_hash"].get<std::string>());
}

/// How often a file has been opened since this was made.
class Openings {
 public:
  explicit Openings(const fs::path& file) {
    EXPECT_GE(::inotify_add_watch(watch_, file.c_str(), IN_OPEN | IN_CLOSE), 0);
  }
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;
  ~Openings() { ::close(watch_); }

  [[nodiscard]] int count() const {
    int opened = 0;
    inotify_event event = {};  // no name follows where a file is watched
    while (::read(watch_, &event, sizeof event) == sizeof event) {
      if ((event.mask & IN_OPEN) != 0) ++opened;
    }
    return opened;
  }

 private:
  int watch_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
};

std::vector<float> floats_of(const fs::path& checkpoint, const CheckpointFile& file) {
  const std::vector<std::byte> bytes = read_checked(checkpoint, file);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Ranks 0 and 1 have averaged, and rank 2 by itself.
TEST(ResumeChoiceTest, AFileOfSeveralReplicasIsReadOnceAndCountsAsOftenInTheMean) {
  Experiment experiment = experiment_of("hierarchical");
  experiment.update.period = 12;
  experiment.update.group = 2;
  experiment.checkpoint.every_steps = 4;
  const ScratchFolder folder;
  run_in(folder.path(), 3, experiment);
  const fs::path checkpoint = checkpoint_folder(folder.path(), 4);
  const Manifest manifest = read_manifest(checkpoint);
  const CheckpointFile& shared = manifest.file_of(0, Part::parameters);
  const CheckpointFile& other = manifest.file_of(2, Part::parameters);
  ASSERT_EQ(shared, manifest.file_of(1, Part::parameters));
  ASSERT_NE(shared, other);
  std::vector<float> mean(floats_of(checkpoint, shared));
  std::ranges::transform(
      mean, floats_of(checkpoint, other), mean.begin(),
      [](double twice, double once) { return static_cast<float>((2.0 * twice + once) / 3.0); });

  const Openings openings(checkpoint / shared.name);
  const ModelWeights weights = weights_of_checkpoint(checkpoint, manifest, model_of(experiment));

  EXPECT_EQ(openings.count(), 1);
  EXPECT_EQ(hash_of({weights.parameters}), hash_of({mean}));
}

TEST(ResumeChoiceTest, ARunThatIsAtItsEndKeepsItsEpochOpen) {
  Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 1, experiment, {}, 9).stopped);  // after step 8, in epoch 2
  experiment.train.max_steps = 8;
  run_in(folder.path(), 1, experiment, "auto");
  experiment.train.max_steps = 12;
  run_in(folder.path(), 1, experiment, "auto");

  std::vector<std::int64_t> epochs;
  for (const auto& event : test::events(folder.path(), "epoch")) epochs.push_back(event["epoch"]);
  EXPECT_THAT(epochs, testing::ElementsAre(1, 2, 3));
}

TEST(ResumeChoiceTest, ARunThatGoesOnLeavesItsOldModelBehind) {
  Experiment experiment = experiment_of("synchronous");
  experiment.checkpoint.every_epochs = 1;
  experiment.train.max_steps = 5;
  const ScratchFolder folder;
  run_in(folder.path(), 1, experiment);
  ASSERT_TRUE(fs::exists(folder.path() / "model.safetensors"));
  experiment.train.max_steps = 12;

  ASSERT_TRUE(run_in(folder.path(), 1, experiment, "auto", 2).stopped);

  EXPECT_FALSE(fs::exists(folder.path() / "model.safetensors"));
}

TEST(ResumeChoiceTest, TheBestOneMayBeWhereTheRunEndsWithinAnEpoch) {
  Experiment experiment = experiment_of("synchronous");
  experiment.train.max_steps = 3;
  experiment.checkpoint.best = true;
  const ScratchFolder folder;
  const RunEnd end = run_in(folder.path(), 1, experiment);

  const fs::path best = find_checkpoint(folder.path(), "best");

  EXPECT_EQ(best, checkpoint_folder(folder.path(), 3));
  EXPECT_EQ(read_manifest(best).accuracy, end.last.accuracy);
}

TEST(ResumeChoiceTest, AnotherPluginIsRefusedAndAnotherPlaceIsNot) {
  Experiment then = experiment_of("synchronous");
  Experiment now = then;
  then.update.plugin = "build/libmine.so";
  now.update.plugin = "/opt/libmine.so";
  EXPECT_NO_THROW(expect_same_training(then, now));
  for (const char* other : {"", "build/libother.so"}) {
    now.update.plugin = other;
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { expect_same_training(then, now); }),
                HasSubstr("update.plugin"));
  }
}

TEST(ResumeChoiceTest, AResumedRunNeedsNoFileOfWeights) {
  const ScratchFolder first;
  run_in(first.path(), 1, experiment_of("synchronous"));
  Experiment experiment = experiment_of("synchronous");
  experiment.model.weights = first.path() / "model.safetensors";
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 3).stopped);
  World{2}.run([&](transport::World& world) {
    Experiment mine = experiment;
    if (world.rank() == 1) mine.model.weights = "/of/another/host";
    EXPECT_NO_THROW(train::train(world, mine, {.run_folder = folder.path(), .resume = "auto"}));
  });
  fs::remove(experiment.model.weights);
  EXPECT_NO_THROW(run_in(folder.path(), 2, experiment, "auto"));
}

}  // namespace
}  // namespace rondo::train::resume_choice_test
