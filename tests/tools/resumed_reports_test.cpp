// Reports and comparisons of runs that were resumed: extended, moved to other ranks, or continued
// in another folder.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/runs.hpp"
#include "report/report.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::resumed_reports_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

using Json = nlohmann::json;

std::string config_of(int epochs) {
  return "[data]\nname = \"synthetic\"\n[model]\nname = \"lenet5\"\n[train]\nepochs = " +
         std::to_string(epochs) + "\n[update]\nscheme = \"synchronous\"\n";
}

// Ten steps an epoch.
Json start_event(int epochs) {
  return {{"event", "start"},
          {"ranks", 2},
          {"threads", 1},
          {"nodes", 1},
          {"hosts", {"a", "a"}},
          {"injected", Json::array()},
          {"global_batch", 16},
          {"steps_per_epoch", 10},
          {"total_steps", 10 * epochs},
          {"config", config_of(epochs)}};
}

Json epoch_event(int epoch, double accuracy) {
  return {{"event", "epoch"}, {"epoch", epoch},    {"accuracy", accuracy},
          {"seconds", 2.0},   {"bytes_sent", 100}, {"global_reductions", 10}};
}

// As versions wrote it that did not say what the run went on with.
Json old_resume_event(int step) {
  return {{"event", "resume"},  {"epoch", step / 10},
          {"total_step", step}, {"ranks", 2},
          {"threads", 1},       {"checkpoint", "step-" + std::to_string(step)}};
}

Json resume_event(int step, int epochs) {
  Json event = old_resume_event(step);
  event.update({{"config", config_of(epochs)},
                {"total_steps", 10 * epochs},
                {"nodes", 1},
                {"hosts", {"a", "a"}},
                {"injected", Json::array()}});
  return event;
}

Json end_event(int steps) {
  return {{"event", "end"}, {"reason", "completed"}, {"steps", steps}, {"training_seconds", 8.0}};
}

std::string text_of(const std::vector<Json>& events) {
  std::string text;
  for (const Json& event : events) text += event.dump() + '\n';
  return text;
}

class ResumedReportsTest : public testing::Test {
 protected:
  void add(const std::vector<Json>& events) {
    const std::string name = "run" + std::to_string(runs_.size());
    std::filesystem::create_directories(scratch_.path() / name);
    const auto file = scratch_.write(name + "/metrics.jsonl", text_of(events));
    runs_.push_back(read_reported_run(file.parent_path()));
  }
  Advice advice() {
    variants_ = variants_of(runs_);
    return advise(runs_, variants_);
  }
  [[nodiscard]] Json accuracies(std::size_t run) const {
    return curve_of(runs_[run], curve_kinds().front());
  }

  test::ScratchFolder scratch_;
  std::vector<ReportedRun> runs_;
  std::vector<Variant> variants_;
};

// A run of two epochs that was extended to four.
std::vector<Json> extended(const Json& resume) {
  return {start_event(2),     epoch_event(1, 50), epoch_event(2, 60), resume,
          epoch_event(3, 70), epoch_event(4, 80), end_event(40)};
}

TEST_F(ResumedReportsTest, AnExtendedRunGoesOnBehindItsFirstEnd) {
  add(extended(resume_event(20, 4)));

  EXPECT_EQ(accuracies(0)["step"], Json({10.0, 20.0, 30.0, 40.0}));
  EXPECT_EQ(accuracies(0)["seconds"], Json({2.0, 4.0, 6.0, 8.0}));
  EXPECT_EQ(runs_[0].keys["train.epochs"], "4");
}

TEST_F(ResumedReportsTest, AResumeEventOfAnOlderVersionDoesNotCutTheRunShort) {
  add(extended(old_resume_event(20)));
  EXPECT_EQ(accuracies(0)["step"], Json({10.0, 20.0, 30.0, 40.0}));
  EXPECT_EQ(runs_[0].keys["train.epochs"], "2");

  // Its end tells where the last epoch was cut short.
  add({start_event(4), epoch_event(1, 50), old_resume_event(10), epoch_event(2, 60),
       end_event(15)});
  EXPECT_EQ(accuracies(1)["step"], Json({10.0, 15.0}));
}

// As a run leaves it that was resumed after its start event had been damaged.
TEST_F(ResumedReportsTest, AStartEventMayComeBehindEarlierEvents) {
  add({epoch_event(1, 50), epoch_event(2, 60), start_event(4), resume_event(20, 4),
       epoch_event(3, 70), epoch_event(4, 80), end_event(40)});

  EXPECT_THAT(runs_[0].problems, Not(Contains(HasSubstr("start event"))));
  EXPECT_EQ(accuracies(0)["step"], Json({10.0, 20.0, 30.0, 40.0}));
  EXPECT_EQ(runs_[0].keys["train.epochs"], "4");
}

TEST_F(ResumedReportsTest, AComparisonTakesAnExtendedRunForWhatItIsNow) {
  Training wanted;
  wanted.experiment = train::parse_experiment(config_of(4), "wanted");
  wanted.placement.threads = 1;
  wanted.placement.cores.resize(2);
  scratch_.write("metrics.jsonl", text_of(extended(resume_event(20, 4))));

  EXPECT_EQ(find_run(scratch_.path(), wanted).state, RunState::completed);
  wanted.experiment.train.epochs = 2;
  EXPECT_EQ(find_run(scratch_.path(), wanted).difference, "train.epochs is 4, would be 2");
}

TEST_F(ResumedReportsTest, NamesInWhatThePartsOfARunDiffer) {
  Json resume = resume_event(20, 4);
  resume.update({{"ranks", 4},
                 {"nodes", 2},
                 {"hosts", {"a", "b", "a", "b"}},
                 {"injected", Json::array({"rank 1 is 2 times as slow"})}});
  add(extended(resume));
  add(extended(resume_event(20, 4)));

  const std::vector<std::string> notes = advice().notes;

  EXPECT_THAT(notes,
              Contains(AllOf(HasSubstr("run0: its parts differ in ranks (2, then 4), nodes (1, "
                                       "then 2), hosts (a, then a, b)"),
                             HasSubstr("injected (none, then rank 1 is 2 times as slow)"),
                             HasSubstr("its times are of all of them"))));
  EXPECT_THAT(notes, Not(Contains(HasSubstr("run1: its parts"))));
  EXPECT_THAT(notes, Contains(HasSubstr("slowed down on purpose")));
}

// As of one that was stopped before its first line of steps.
TEST_F(ResumedReportsTest, NamesWhatDiffersInAPartWithoutEvents) {
  Json resume = resume_event(3, 4);
  resume["ranks"] = 4;
  add({start_event(4), resume, epoch_event(1, 60), end_event(40)});

  EXPECT_THAT(advice().notes, Contains(HasSubstr("its parts differ in ranks (2, then 4)")));
}

// A run of four epochs whose first two are in another folder.
std::vector<Json> moved() {
  return {start_event(4), resume_event(20, 4), epoch_event(3, 70), epoch_event(4, 80),
          end_event(40)};
}

// The same of another variant.
std::vector<Json> moved_variant() {
  std::vector<Json> events = moved();
  for (Json& event : events) {
    if (!event.contains("config")) continue;
    event["config"] = event["config"].get<std::string>() + "period = 4\n";
  }
  return events;
}

TEST_F(ResumedReportsTest, ARunFromAnotherFolderBeginsWhereItWasResumed) {
  add(moved());

  // Linear between the marks: at step 25 half of an epoch.
  EXPECT_EQ(accuracies(0)["step"], Json({30.0, 40.0}));
  EXPECT_EQ(accuracies(0)["seconds"], Json({2.0, 4.0}));
  const CurveKind losses = {"", "", "step", "loss", ""};
  runs_[0].events["step"].push_back({{"event", "step"}, {"total_step", 25}, {"loss", 1.0}});
  EXPECT_EQ(curve_of(runs_[0], losses)["seconds"], Json({1.0}));
}

TEST_F(ResumedReportsTest, ARunFromAnotherFolderHasNoTimeToAnAccuracy) {
  add({start_event(4), epoch_event(1, 50), epoch_event(2, 60), epoch_event(3, 70),
       epoch_event(4, 80), end_event(40)});
  add(moved_variant());  // that looks twice as fast

  const Advice advice = this->advice();

  EXPECT_EQ(advice.take, 0);
  EXPECT_EQ(variants_[0].summary.time_to_it, 8.0);
  EXPECT_FALSE(variants_[1].summary.time_to_it.has_value());
  EXPECT_FALSE(variants_[1].summary.seconds.has_value());
  EXPECT_FALSE(variants_[1].summary.bytes_sent.has_value());
  EXPECT_EQ(variants_[1].summary.final_accuracy->mean, 80.0);
  EXPECT_THAT(advice.notes, Contains(HasSubstr("run1: it was resumed from another folder; what it "
                                               "spent on the first 20 steps is not known")));
}

TEST_F(ResumedReportsTest, TellsNoTimesWhereAllRunsAreFromAnotherFolder) {
  add(moved());
  std::vector<Json> other = moved_variant();
  other[3]["accuracy"] = 80.25;
  add(other);

  const Advice advice = this->advice();

  EXPECT_EQ(advice.take, 1);
  EXPECT_THAT(advice.answer, HasSubstr("no run tells how long it takes to 80.00 %"));
}

// Its first epoch's event has the figures of the whole epoch.
TEST_F(ResumedReportsTest, ARunThatWasResumedWithinItsFirstEpochIsWhole) {
  add({start_event(2), resume_event(5, 2), epoch_event(1, 50), epoch_event(2, 60), end_event(20)});

  EXPECT_EQ(accuracies(0)["seconds"], Json({2.0, 4.0}));
  EXPECT_EQ(seconds_to_accuracy(runs_[0].record, 60.0), 4.0);
}

}  // namespace
}  // namespace rondo::tools::resumed_reports_test
