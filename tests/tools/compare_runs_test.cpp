// What `rondo compare` makes of a run folder.

#include "compare/runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/scratch_folder.hpp"

namespace rondo::tools::compare_runs_test {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

// Lines of metrics.jsonl, as a trainer would write them.

const char* const small_experiment = R"([data]
name = "synthetic"
[model]
name = "lenet5"
[train]
epochs = 2
)";

// `training` on one node.
std::string start_line(const Training& training) {
  const nlohmann::json event = {{"event", "start"},
                                {"config", train::to_toml(training.experiment)},
                                {"ranks", training.placement.ranks()},
                                {"threads", training.placement.threads},
                                {"nodes", 1}};
  return event.dump() + '\n';
}

// An epoch of 8 global and 2 local reductions, and 1024 bytes.
std::string epoch_line(double accuracy, double seconds) {
  const nlohmann::json event = {{"event", "epoch"},       {"accuracy", accuracy},
                                {"seconds", seconds},     {"global_reductions", 8},
                                {"local_reductions", 2},  {"bytes_sent", 1024},
                                {"evaluation_seconds", 9}};
  return event.dump() + '\n';
}

std::string end_line(const std::string& reason) {
  return nlohmann::json{{"event", "end"}, {"reason", reason}}.dump() + '\n';
}

class RunRecordTest : public testing::Test {
 protected:
  RunRecordTest() {
    wanted_.experiment = train::parse_experiment(small_experiment, "small");
    wanted_.placement.threads = 1;
    wanted_.placement.cores.resize(2);
  }

  [[nodiscard]] RunRecord read(const std::string& text) const {
    return read_run_record(folder_.write("metrics.jsonl", text));
  }
  [[nodiscard]] FoundRun find(const std::string& text) const {
    folder_.write("metrics.jsonl", text);
    return find_run(folder_.path(), wanted_);
  }
  [[nodiscard]] std::string start() const { return start_line(wanted_); }

  rondo::test::ScratchFolder folder_;
  Training wanted_;
};

TEST_F(RunRecordTest, ReadsStartEpochsAndEnd) {
  const RunRecord record =
      read(start() + epoch_line(50.0, 2.0) + epoch_line(60.5, 3.0) + end_line("completed"));

  ASSERT_TRUE(record.start.has_value());
  EXPECT_EQ(record.start->ranks, 2);
  ASSERT_EQ(record.epochs.size(), 2U);
  EXPECT_EQ(record.epochs[1].accuracy, 60.5);
  EXPECT_EQ(record.epochs[1].seconds, 3.0);
  EXPECT_EQ(record.epochs[1].global_reductions, 8.0);
  EXPECT_EQ(record.epochs[1].bytes_sent, 1024.0);
  EXPECT_TRUE(record.completed());
}

TEST_F(RunRecordTest, TellsWhichBytesWereNotRecorded) {
  const RunRecord record =
      read(epoch_line(50.0, 2.0) +
           R"({"event":"epoch","accuracy":1.0,"global_bytes":64,"local_bytes":32})" + "\n");

  EXPECT_FALSE(record.epochs[0].global_bytes.has_value());
  EXPECT_EQ(record.epochs[1].global_bytes, 64.0);
  EXPECT_EQ(record.epochs[1].local_bytes, 32.0);
}

TEST_F(RunRecordTest, PassesOverDamagedLines) {
  const RunRecord record = read("{\"event\": \"epo\n\n[1]\n\"epoch\"\n{\"event\": 7}\n" +
                                epoch_line(50.0, 2.0) + R"({"event": "end", "rea)");

  EXPECT_EQ(record.epochs.size(), 1U);
  EXPECT_FALSE(record.completed());
}

TEST_F(RunRecordTest, TakesAValueOfTheWrongTypeForAbsent) {
  const RunRecord record = read(R"({"event":"epoch","accuracy":null,"seconds":"long"})");

  EXPECT_TRUE(std::isnan(record.epochs.at(0).accuracy));
  EXPECT_EQ(record.epochs.at(0).seconds, 0.0);
}

TEST_F(RunRecordTest, IsEmptyWithoutAFile) {
  const RunRecord record = read_run_record(folder_.path() / "none");

  EXPECT_FALSE(record.start.has_value());
  EXPECT_FALSE(record.completed());
}

TEST_F(RunRecordTest, CountsARunThatWasStoppedByMaxStepsAsCompleted) {
  const std::string begun = start() + epoch_line(50.0, 2.0);

  EXPECT_TRUE(read(begun + end_line("max_steps")).completed());
  EXPECT_FALSE(read(begun + end_line("the loss became NaN")).completed());
  EXPECT_FALSE(read(start() + end_line("completed")).completed());
}

TEST_F(RunRecordTest, FindsNothingInAnAbsentFolder) {
  EXPECT_EQ(find_run(folder_.path() / "none", wanted_).state, RunState::absent);
}

TEST_F(RunRecordTest, FindsTheSameRunCompletedOrNot) {
  const std::string begun = start() + epoch_line(50.0, 2.0);

  EXPECT_EQ(find(begun).state, RunState::incomplete);
  EXPECT_EQ(find(begun + end_line("completed")).state, RunState::completed);
  EXPECT_EQ(find("").state, RunState::incomplete);
}

TEST_F(RunRecordTest, NamesTheFirstKeyThatDiffers) {
  const std::string begun = start();
  wanted_.experiment.train.epochs = 9;
  wanted_.experiment.optimizer.momentum = 0.5;

  const FoundRun found = find(begun);

  EXPECT_EQ(found.state, RunState::different);
  EXPECT_EQ(found.difference, "train.epochs is 2, would be 9");
}

TEST_F(RunRecordTest, TellsOtherRanksThreadsAndNodesApart) {
  const std::string begun = start();
  wanted_.placement.cores.resize(3);
  EXPECT_EQ(find(begun).difference, "the number of ranks is 2, would be 3");

  wanted_.placement.cores.resize(2);
  wanted_.placement.threads = 4;
  EXPECT_EQ(find(begun).difference, "the number of threads is 1, would be 4");

  wanted_.placement.threads = 1;
  wanted_.fabric.fake_nodes = 2;
  EXPECT_EQ(find(begun).difference, "the number of nodes is 1, would be 2");
}

TEST_F(RunRecordTest, LooksAtConfigTomlWhenTheRunHasNotBegun) {
  folder_.write("config.toml", train::to_toml(wanted_.experiment));
  EXPECT_EQ(find_run(folder_.path(), wanted_).state, RunState::incomplete);

  wanted_.experiment.train.seed = 5;
  EXPECT_EQ(find_run(folder_.path(), wanted_).difference, "train.seed is 1, would be 5");
}

TEST_F(RunRecordTest, GivesAKeyThatWasNotRecordedItsDefault) {
  EXPECT_EQ(first_difference(small_experiment, wanted_.experiment), "");

  wanted_.experiment.train.log_every = 7;
  EXPECT_EQ(first_difference(small_experiment, wanted_.experiment),
            "train.log_every is 50, would be 7");
}

TEST_F(RunRecordTest, AGridThatThePlannerChoseIsWhatWasAskedOfThePlanner) {
  train::Experiment recorded = wanted_.experiment;
  recorded.grid = {.sample = 1, .filter = 2, .plan = "chosen", .layers = {{"conv1", "height=2"}}};
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment),
            "grid.sample is 1, would be 0");

  wanted_.experiment.grid.plan = "auto";
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment), "");

  wanted_.experiment.grid.batch_norm = "group";
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment),
            "grid.batch_norm is \"rank\", would be \"group\"");
  recorded.grid.plan = "given";
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment),
            "grid.sample is 1, would be 0");
}

TEST_F(RunRecordTest, ComparesAConfigurationOfAnotherVersionAsText) {
  const std::string foreign = train::to_toml(wanted_.experiment) + "[later]\nkey = 1\n";

  EXPECT_THAT(first_difference(foreign, wanted_.experiment), HasSubstr("does not know"));
  EXPECT_EQ(first_difference("nonsense", wanted_.experiment),
            "data.name is not set, would be \"synthetic\"");
}

TEST_F(RunRecordTest, RemovesTheFilesOfARunAndNoOthers) {
  for (const char* name : {"config.toml", "metrics.jsonl", "model.safetensors", "token_trace.jsonl",
                           "flight-rank0.json", "mine.txt"}) {
    folder_.write(name, "text");
  }

  remove_run(folder_.path());
  remove_run(folder_.path() / "none");

  EXPECT_TRUE(fs::exists(folder_.path() / "mine.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

}  // namespace
}  // namespace rondo::tools::compare_runs_test
