// `rondo find-rate` and `rondo train --profile` as programs: what they leave in the run folder.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::short_runs_test {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

using Json = nlohmann::json;

class ShortRunTest : public testing::Test {
 protected:
  ShortRunTest() { scratch_.write("experiment.toml", small_run()); }

  [[nodiscard]] fs::path folder() const { return scratch_.path() / "run"; }
  [[nodiscard]] Words words_of(const std::string& command, const Words& more) const {
    return joined({command, scratch_.path() / "experiment.toml", "--out", folder(), "-n", "2",
                   "--threads", "1"},
                  more);
  }
  [[nodiscard]] Ended run(const std::string& command, const Words& more) const {
    return rondo(words_of(command, more));
  }
  [[nodiscard]] Json file(const std::string& name) const {
    return Json::parse(contents(folder() / name), nullptr, false);
  }
  /// The lines of metrics.jsonl for events of that name.
  [[nodiscard]] std::vector<Json> events(const std::string& name) const {
    return events_in(contents(folder() / "metrics.jsonl"), name);
  }

 private:
  ScratchFolder scratch_;
};

using FindRateTest = ShortRunTest;

TEST_F(FindRateTest, TrainsWithRatesFromTheFirstToTheLast) {
  const Ended ended = run("find-rate", {"--from", "1e-4", "--to", "1e-1", "--steps", "16"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("learning rate"), HasSubstr("The sweep is in ")));
  const Json points = file("find-rate.json")["points"];
  ASSERT_EQ(points.size(), 16U);
  EXPECT_NEAR(points.front()["learning_rate"].get<double>(), 1e-4, 1e-12);
  EXPECT_NEAR(points.back()["learning_rate"].get<double>(), 1e-1, 1e-9);
}

TEST_F(FindRateTest, EndsWhereTrainingDiverges) {
  const Ended ended =
      run("find-rate", {"--from", "1e-3", "--to", "1e9", "--steps", "30", "--format", "json"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  const Json sweep = Json::parse(ended.out, nullptr, false);
  ASSERT_TRUE(sweep.is_object()) << ended.out;
  EXPECT_TRUE(sweep["diverged_at"].is_number());
  EXPECT_LT(sweep["points"].size(), 30U);
  EXPECT_EQ(sweep, file("find-rate.json"));
  // The run itself has ended there: no step more than that in which it diverged.
  EXPECT_LE(events("step").size(), sweep["points"].size() + 1);
}

// The step in which the loss becomes NaN is not logged.
TEST_F(FindRateTest, KnowsThatALossThatIsNoNumberDiverges) {
  const Ended ended = run("find-rate", {"--from", "1e27", "--to", "1e36", "--steps", "10"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("Training diverges at 1e+"));
  EXPECT_THAT(events("end")[0]["reason"], HasSubstr("NaN"));
  const Json sweep = file("find-rate.json");
  const double steps = static_cast<double>(sweep["points"].size());
  EXPECT_NEAR(sweep["diverged_at"].get<double>() / std::pow(10.0, 27.0 + steps), 1.0, 1e-6);
}

// Its ranks had no standard output.
TEST_F(FindRateTest, SweepsWhereItsOutputIsClosed) {
  const Ended ended = rondo_redirected(">&-", words_of("find-rate", {"--steps", "10"}));

  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("rondo: cannot write to standard output: Bad file descriptor"));
  EXPECT_FALSE(file("find-rate.json")["points"].empty());
}

// It left a checkpoint that nothing goes on from, and not what it had measured.
TEST_F(FindRateTest, WritesWhatItHasMeasuredWhenItIsStopped) {
  Program program(rondo_command(words_of("find-rate", {"--steps", "1000000"})));
  while (events("step").size() < 3 && !program.has_ended()) std::this_thread::yield();
  program.send(SIGTERM);
  const Ended stopped = program.wait();

  EXPECT_EQ(stopped.status, 75);
  EXPECT_THAT(stopped.err,
              AllOf(HasSubstr("the sweep was stopped after "),
                    HasSubstr("find-rate.json has these"), Not(HasSubstr("--resume"))));
  EXPECT_EQ(file("find-rate.json")["points"].size(), events("step").size());
  EXPECT_FALSE(fs::exists(folder() / "checkpoints"));
}

TEST_F(FindRateTest, EvaluatesNothingAndLeavesNoModel) {
  const Ended ended =
      run("find-rate", {"--from", "1e-4", "--to", "1e-3", "--steps", "10", "--set",
                        "checkpoint.every_steps=1", "--set", "checkpoint.best=true"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(events("step").size(), 10U);
  EXPECT_TRUE(events("epoch").empty());  // an epoch has 4 steps
  ASSERT_EQ(events("end").size(), 1U);
  EXPECT_EQ(events("end")[0]["reason"], "max_steps");
  EXPECT_EQ(events("end")[0]["samples"], 320);
  EXPECT_FALSE(fs::exists(folder() / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder() / "checkpoints"));
}

TEST_F(FindRateTest, IsShownByAReport) {
  ASSERT_EQ(run("find-rate", {"--steps", "10"}).status, 0);

  const Ended ended = rondo({"report", folder()});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(contents(folder() / "report.html"), HasSubstr("Learning rate"));
}

TEST_F(FindRateTest, RefusesWhatIsNoSweep) {
  expect_refused(run("find-rate", {"--from", "1", "--to", "0.1"}), 2,
                 "--from 1 must be smaller than --to 0.1");
  expect_refused(run("find-rate", {"--set", "update.scheme=cyclic"}), 2,
                 "ranks that step together");
  expect_refused(run("find-rate", {"--steps", "2"}), 2, "--steps: Value 2 not in range");
  EXPECT_FALSE(fs::exists(folder()));
}

using ProfiledRunTest = ShortRunTest;

TEST_F(ProfiledRunTest, LeavesATraceOfEveryRankAndATable) {
  const Ended ended = run("train", {"--profile", "--profile-steps", "2:3"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("alone, cold us"), HasSubstr("Mean of 2 steps (2 to 3)")));
  for (const char* name : {"profile-rank-0.json", "profile-rank-1.json"}) {
    std::set<std::string> names;
    std::set<std::string> categories;
    std::set<Json> steps;
    const Json trace = file(name);
    for (const Json& event : trace["traceEvents"]) {
      names.insert(event["name"]);
      categories.insert(event.value("cat", ""));
      if (event["ph"] == "X") steps.insert(event["args"]["step"]);
    }
    EXPECT_EQ(steps, (std::set<Json>{2, 3}));
    EXPECT_THAT(names, IsSupersetOf({"conv1 forward", "fc3 backward_parameters", "load", "step"}));
    EXPECT_THAT(categories, IsSupersetOf({"collective", "exchange", "finish", "pack"}));
  }
  EXPECT_EQ(file("profile.json")["steps"], 2);
  EXPECT_FALSE(fs::exists(folder() / "profile-record-0.json"));
}

TEST_F(ProfiledRunTest, ComputesTheSameAsWithoutAProfile) {
  ASSERT_EQ(run("train", {"--profile", "--profile-steps", "1:4"}).status, 0);
  const std::string profiled = events("epoch").back()["parameter_hash"];
  fs::remove_all(folder());
  ASSERT_EQ(run("train", {}).status, 0);

  EXPECT_EQ(events("epoch").back()["parameter_hash"], profiled);
}

TEST_F(ProfiledRunTest, SaysWhenTheRunWasTooShort) {
  const Ended ended = run("train", {"--profile"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("no step was profiled: steps 11 to 20 were asked for, and steps 1 to 4 "
                        "were run; choose others"));
  EXPECT_FALSE(fs::exists(folder() / "profile-rank-0.json"));
}

// Rank 1 said nothing, and rank 0 that it was lost.
TEST_F(ProfiledRunTest, SaysWhyARankCannotWriteItsTrace) {
  fs::create_directories(folder() / "profile-rank-1.json" / "full");

  const Ended ended = run("train", {"--profile", "--profile-steps", "2:3"});

  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_THAT(
      lines(ended.err),
      IsSupersetOf({AllOf(HasSubstr("rondo: rank 1 on "), HasSubstr("profile-rank-1.json")),
                    AllOf(HasSubstr("rondo: rank 0: "), HasSubstr("profile-rank-1.json"))}));
}

// The profiled steps are over when the first epoch ends.
TEST_F(ProfiledRunTest, IsWrittenWhenTheRunIsStoppedAndStaysWhenItGoesOn) {
  const Words endless = {"--profile", "--profile-steps", "2:3", "--set", "train.epochs=100000"};
  Program program(rondo_command(words_of("train", endless)));
  program.output_until("epoch 1/");
  program.send(SIGTERM);
  const Ended stopped = program.wait();

  EXPECT_EQ(stopped.status, 75) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("Mean of 2 steps (2 to 3)"));
  EXPECT_EQ(file("profile.json")["steps"], 2);
  const Json trace = file("profile-rank-1.json");

  const std::string before_step = "stopped as asked after step ";
  const std::string step = stopped.err.substr(stopped.err.find(before_step) + before_step.size());
  const std::string here = "train.max_steps=" + step.substr(0, step.find(';'));
  const Ended resumed = run("train", joined(endless, {"--resume", "auto", "--set", here}));

  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out,
              HasSubstr("steps 2 to 3 were asked for, and no step was run; choose others"));
  EXPECT_EQ(file("profile-rank-1.json"), trace);
}

// A flight record keeps the last 1,024 operations; it was written at the end of such a run.
TEST_F(ProfiledRunTest, HasTheCollectivesOfARangeInWhichTheRunWasResumed) {
  const Words small_steps = {"--set", "data.training=1000", "--set", "train.global_batch=2",
                             "--set", "train.epochs=1",     "--set", "checkpoint.every_epochs=1"};
  const Words rest = {"--resume", "auto", "--profile", "--profile-steps", "2:3"};
  ASSERT_EQ(run("train", joined(small_steps, {"--set", "train.max_steps=2"})).status, 0);
  const Ended resumed = run("train", joined(small_steps, rest));

  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(file("profile.json")["steps"], 1);
  std::set<std::string> categories;
  const Json trace = file("profile-rank-0.json");
  for (const Json& event : trace["traceEvents"]) {
    categories.insert(event.value("cat", ""));
  }
  EXPECT_THAT(categories, Contains("collective"));
}

TEST_F(ProfiledRunTest, RefusesARangeThatIsNone) {
  expect_refused(run("train", {"--profile", "--profile-steps", "3:2"}), 2,
                 "--profile-steps: '3:2' is no range");
  EXPECT_FALSE(fs::exists(folder()));
}

}  // namespace
}  // namespace rondo::test::short_runs_test
