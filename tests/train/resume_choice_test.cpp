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

using rondo::test::contents;
using rondo::test::ScratchFolder;
using rondo::test::World;
using test::expect_refusal;
using test::experiment_of;
using test::run_in;
using test::RunEnd;
using test::steady_lines;
using test::with;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

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

// A run that is stopped at a look, or ends (0), and what becomes of its folder and configuration
// then. The change returns what is to be resumed.
struct State {
  std::string what;
  std::string settings;
  int stop_at;
  std::function<fs::path(const fs::path& folder, Experiment& experiment)> change;
};

fs::path unchanged(const fs::path& /*folder*/, Experiment& /*experiment*/) { return "auto"; }

// As it would be if the file ended there.
void cut_file(const fs::path& file, const std::string& from) {
  fs::resize_file(file, contents(file).rfind(from));
}

struct GoesOn : State {
  std::vector<testing::Matcher<std::string>> notes;
};

// Ends with the bits of a run that was not interrupted, and says what it did.
TEST(ResumeChoiceTest, ARunGoesOnFromEveryState) {
  const ScratchFolder elsewhere;
  const auto damages = [](const fs::path& run, auto&) {
    const fs::path newest = checkpoint_folder(run, 12) / "scheme-0.bin";
    std::string bytes = contents(newest);
    bytes.back() = static_cast<char>(bytes.back() ^ 4);
    std::ofstream(newest, std::ios::binary) << bytes;
    fs::remove(checkpoint_folder(run, 8) / "parameters-0.bin");
    return "auto";
  };
  const auto links = [&](const fs::path& run, auto&) {
    const fs::path checkpoint = list_checkpoints(run).front();
    fs::copy(checkpoint, elsewhere.path() / "moved");
    fs::remove_all(checkpoint);
    fs::create_directory_symlink(elsewhere.path() / "moved", checkpoint);
    return "auto";
  };
  const auto loses_log = [](const fs::path& run, auto&) {
    fs::remove(run / "metrics.jsonl");
    return "auto";
  };
  const auto is_killed = [](const fs::path& run, auto&) {
    cut_file(run / "metrics.jsonl", "{\"event\":\"end\"");
    return "auto";
  };
  const auto completes = [](const fs::path& run, Experiment& experiment) {
    run_in(run, 2, experiment, "auto");
    return "auto";
  };
  const auto resumed = [](const std::string& from) {
    return std::vector<testing::Matcher<std::string>>{HasSubstr("resumed from"), HasSubstr(from)};
  };
  // Averages stop a run at the end of a round of four steps.
  const GoesOn states[] = {
      {{"a stopped run", "", 3, unchanged}, resumed("step-4: step 4, epoch 1")},
      {{"a path that ends in a slash", "", 3,
        [](const fs::path& run, auto&) { return list_checkpoints(run).front().string() + "/"; }},
       resumed("step-4:")},
      {{"a link to the checkpoint", "", 3, links}, resumed("step-4:")},
      {{"data that are read in another way", "", 3,
        [](auto&, Experiment& e) { return e.data.broken = BrokenImages::skip, "auto"; }},
       resumed("step-4:")},
      {{"the same grid in other words", "", 3,
        [](auto&, Experiment& e) { return e.grid.sample = 2, "auto"; }},
       resumed("step-4:")},
      {{"a log that was lost", "", 3, loses_log}, resumed("step-4:")},
      // Or the next --resume auto would go back to the step at which it was stopped.
      {{"a run that was stopped and has ended", "", 3, completes}, resumed("step-12:")},
      // Each damaged checkpoint is skipped, with its reason.
      {{"damaged checkpoints", "checkpoint.every_steps=4", 0, damages},
       {AllOf(HasSubstr("skipped step-12"), HasSubstr("scheme-0.bin"), HasSubstr("checksum")),
        AllOf(HasSubstr("skipped step-8"), HasSubstr("parameters-0.bin")),
        HasSubstr("step 4, epoch 1")}},
      {{"a killed run without checkpoints", "", 0, is_killed}, {HasSubstr("the run begins")}},
  };
  const RunEnd whole = run_in(ScratchFolder().path(), 2, experiment_of("k_step"));
  for (const GoesOn& state : states) {
    SCOPED_TRACE(state.what);
    Experiment experiment = with(experiment_of("k_step"), state.settings);
    const ScratchFolder scratch;
    const fs::path folder = scratch.path() / "a\nb";  // a name may have several lines
    ASSERT_EQ(run_in(folder, 2, experiment, {}, state.stop_at).stopped, state.stop_at > 0);

    const fs::path resume = state.change(folder, experiment);
    const RunEnd end = run_in(folder, 2, experiment, resume);

    for (const auto& note : state.notes) EXPECT_THAT(end.notes, Contains(note));
    EXPECT_EQ(end.last.parameter_hash, whole.last.parameter_hash);
    EXPECT_TRUE(contents(folder / "metrics.jsonl").starts_with(R"({"event":"start")"));
  }
}

struct Refused : State {
  bool is_data;  // a DataError, else a ConfigError
  testing::Matcher<std::string> text;
};

TEST(ResumeChoiceTest, ARefusedRunLeavesTheFolderAsItWas) {
  const ScratchFolder source;
  ASSERT_TRUE(run_in(source.path(), 2, experiment_of("synchronous"), {}, 3).stopped);
  const auto set = [](const std::string& settings) {
    return [settings](auto&, Experiment& experiment) {
      experiment = with(experiment_of("synchronous"), settings);
      return "auto";
    };
  };
  const Refused states[] = {
      {{"a complete run", "", 0, unchanged}, false, HasSubstr("holds a run that has completed")},
      {{"another rate", "", 3, set("optimizer.learning_rate=0.5")},
       false,
       AllOf(HasSubstr("optimizer.learning_rate"), HasSubstr("0.5"), HasSubstr("0.05"))},
      // The model is named, and not a key of the grid that the planner had chosen for it.
      {{"another model", "model.name=resnet8 grid.height=2 grid.layers={'layer1.*'='height=2'}", 3,
        set("grid.plan=auto")},
       false,
       HasSubstr("model.name")},
      {{"a shorter run", "", 9, set("train.epochs=1")},
       false,
       AllOf(HasSubstr("train.epochs, train.max_steps: the run ends after step 5"),
             HasSubstr("is of step 8; let it train for longer"))},
      // Perhaps a disk of one host is missing: nothing that is there may be removed.
      {{"no checkpoint that can be used", "", 3,
        [](const fs::path& run, auto&) {
          fs::remove(checkpoint_folder(run, 3) / "parameters-0.bin");
          return "auto";
        }},
       true,
       AllOf(HasSubstr("parameters-0.bin"), HasSubstr("to begin the run anew, remove"))},
      {{"a checkpoint of another run", "", 0,
        [&](auto&, auto&) { return checkpoint_folder(source.path(), 3); }},
       false,
       HasSubstr("already holds another run than the checkpoint's")},
      // Two were started at once, and this one has waited until the other one had ended.
      {{"a run that has begun meanwhile", "", 0, [](auto&, auto&) { return fs::path(); }},
       false,
       HasSubstr("already holds a run's metrics.jsonl")},
  };
  for (const Refused& state : states) {
    SCOPED_TRACE(state.what);
    const ScratchFolder folder;
    Experiment experiment = with(experiment_of("synchronous"), state.settings);
    ASSERT_EQ(run_in(folder.path(), 2, experiment, {}, state.stop_at).stopped, state.stop_at > 0);
    TrainerOptions options{.run_folder = folder.path()};
    options.keep_earlier_run = true;
    options.resume = state.change(folder.path(), experiment);
    // The error alone says what is wrong with the only checkpoint.
    options.observer.on_note = [](const std::string& note) {
      EXPECT_THAT(note, testing::Not(HasSubstr("skipped")));
    };
    const std::string metrics = contents(folder.path() / "metrics.jsonl");
    const std::string model = contents(folder.path() / "model.safetensors");
    const auto checkpoints = list_checkpoints(folder.path());

    if (state.is_data) {
      expect_refusal<DataError>(2, experiment, options, state.text);
    } else {
      expect_refusal<ConfigError>(2, experiment, options, state.text);
    }

    EXPECT_EQ(contents(folder.path() / "metrics.jsonl"), metrics);
    EXPECT_EQ(contents(folder.path() / "model.safetensors"), model);
    EXPECT_EQ(list_checkpoints(folder.path()), checkpoints);
  }
}

// Lines that were lost are told, and the others stay whole.
TEST(ResumeChoiceTest, ALogThatIsTooShortIsTold) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 1, experiment, {}, 6).stopped);
  const fs::path log = folder.path() / "metrics.jsonl";
  const std::string start = contents(log).substr(0, contents(log).find('\n') + 1);
  fs::resize_file(log, start.size() + 7);

  const RunEnd resumed = run_in(folder.path(), 1, experiment, "auto");

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("bytes: events up to step 5 are missing")));
  EXPECT_TRUE(contents(log).starts_with(start + R"({"event":"resume")"));
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
