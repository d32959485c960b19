// Runs that are resumed on other ranks or on another grid: they go on from averages.

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <rondo/train/trainer.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/resumed_runs.hpp"
#include "train/tiny_network.hpp"

namespace rondo::train::resume_elsewhere_test {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using rondo::test::ScratchFolder;
using rondo::test::World;
using test::events;
using test::experiment_of;
using test::run_in;
using test::RunEnd;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

// All ranks are alike under synchronous updates, momenta included: only sums are added up in
// another order.
TEST(ResumeElsewhereTest, OtherRanksGoOnFromTheAverage) {
  const Experiment experiment = experiment_of("synchronous");
  const ScratchFolder whole;
  const RunEnd expected = run_in(whole.path(), 2, experiment);
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 7).stopped);
  const RunEnd resumed = run_in(folder.path(), 4, experiment, "auto");

  EXPECT_THAT(resumed.notes, Contains(AllOf(HasSubstr("2 ranks in 2 replicas were others"),
                                            HasSubstr("momenta are kept"))));
  EXPECT_NEAR(resumed.last.test_loss, expected.last.test_loss, 1e-3);
  EXPECT_EQ(resumed.last.epoch, expected.last.epoch);
  // The epoch in which the run was stopped is whole.
  const std::vector<json> epochs = events(folder.path(), "epoch");
  const std::vector<json> whole_epochs = events(whole.path(), "epoch");
  ASSERT_EQ(epochs.size(), whole_epochs.size());
  EXPECT_NEAR(epochs[1]["loss"].get<double>(), whole_epochs[1]["loss"].get<double>(), 1e-3);
  EXPECT_EQ(epochs[1]["global_reductions"], whole_epochs[1]["global_reductions"]);
  const json end = events(folder.path(), "end").back();
  EXPECT_EQ(end["samples"], 96);
  EXPECT_EQ(end["global_reductions"], end["synchronous_reductions"]);
}

TEST(ResumeElsewhereTest, StepsOnOtherRanksAreComparedWithSynchronousOnesOfThese) {
  const Experiment experiment = experiment_of("synchronous");
  for (const int ranks : {1, 4}) {
    const ScratchFolder folder;
    ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 4).stopped);
    run_in(folder.path(), ranks, experiment, "auto");

    const json end = events(folder.path(), "end").back();
    EXPECT_GE(end["global_reductions"], 4) << ranks;
    EXPECT_EQ(end["synchronous_reductions"], end["global_reductions"]) << ranks;
    EXPECT_EQ(end["synchronous_bytes"], end["global_bytes"]) << ranks;
    EXPECT_EQ(end["synchronous_bytes_sent"], end["bytes_sent"]) << ranks;
  }
}

// Stops a run of two ranks, goes on with `other` on four, and stops once more at the nth look: the
// end is that of a run that was stopped once.
void expect_same_end_after_a_change(const Experiment& experiment, const Experiment& other,
                                    int stop_again) {
  const ScratchFolder once;
  ASSERT_TRUE(run_in(once.path(), 2, experiment, {}, 7).stopped);
  const ScratchFolder twice;
  fs::copy(once.path(), twice.path(), fs::copy_options::recursive);
  const RunEnd expected = run_in(once.path(), 4, other, "auto");
  ASSERT_TRUE(run_in(twice.path(), 4, other, "auto", stop_again).stopped);
  const RunEnd resumed = run_in(twice.path(), 4, other, "auto");

  EXPECT_THAT(resumed.notes, Contains(HasSubstr("resumed from")));
  EXPECT_EQ(resumed.last.parameter_hash, expected.last.parameter_hash);
}

TEST(ResumeElsewhereTest, ARunThatWentOnOnOtherRanksCanBeStoppedAgain) {
  for (const char* scheme : {"synchronous", "sharded", "k_step", "hierarchical", "lazy"}) {
    Experiment experiment = experiment_of(scheme, "resnet8");
    if (scheme != std::string("synchronous")) experiment.update.warmup_epochs = 1.0;  // of 5 steps
    if (scheme != std::string("lazy")) experiment.optimizer.name = OptimizerName::adam;
    experiment.update.lazy_layers = "3";  // and not as many as a measurement says
    expect_same_end_after_a_change(experiment, experiment, 2);
  }
}

// The warm-up has three steps left where the grid changes.
TEST(ResumeElsewhereTest, ARunThatWentOnOnAnotherGridWithinItsWarmUpCanBeStoppedAgain) {
  Experiment experiment = experiment_of("k_step", "resnet8");
  experiment.update.warmup_epochs = 2.0;
  Experiment other = experiment;
  other.grid.height = 2;
  expect_same_end_after_a_change(experiment, other, 1);
  expect_same_end_after_a_change(experiment, other, 4);
}

TEST(ResumeElsewhereTest, AnotherGridGoesOnFromTheAverage) {
  for (const char* scheme : {"synchronous", "sharded", "k_step", "lazy"}) {
    Experiment experiment = experiment_of(scheme, "resnet8");
    experiment.update.lazy_layers = "2";
    const ScratchFolder folder;
    ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 7).stopped);
    if (experiment.update.scheme != "lazy") experiment.grid.height = 2;
    const RunEnd resumed = run_in(folder.path(), 4, experiment, "auto");

    EXPECT_THAT(resumed.notes, Contains(HasSubstr("means over its replicas, momenta and pending")));
    EXPECT_EQ(resumed.last.epoch, 3);
  }
}

TEST(ResumeElsewhereTest, CyclicIsRefusedOnOtherRanks) {
  Experiment experiment = experiment_of("cyclic");
  experiment.train.max_steps = 0;
  const ScratchFolder folder;
  ASSERT_TRUE(run_in(folder.path(), 2, experiment, {}, 1).stopped);

  World{3}.run([&](transport::World& world) {
    TrainerOptions options;
    options.run_folder = world.rank() == 0 ? folder.path() : fs::path();
    options.resume = "auto";
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { train(world, experiment, options); }),
                HasSubstr("2 ranks in 2 replicas"));
  });
}

}  // namespace
}  // namespace rondo::train::resume_elsewhere_test
