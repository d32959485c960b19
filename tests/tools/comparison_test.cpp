// The parts of `rondo compare`: what it reads from --schemes, what runs left behind, and what it
// computes from them.

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/run_directory.hpp>

#include "compare.hpp"
#include "compare/runs.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::comparison_test {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The schemes that `rondo compare` reads from --schemes.

// The problem with `item`.
std::string complaint(const std::string& item) {
  return rondo::test::error_text<UsageError>(
      [&] { static_cast<void>(parse_scheme_items({item})); });
}

struct Read {
  const char* text;
  const char* label;  // a folder's name
  std::vector<std::string> settings;
};

// Bare keys are of [update].
TEST(SchemeItemTest, HasALabelAndSettings) {
  const std::vector<Read> items = {
      {"synchronous", "synchronous", {"update.scheme=synchronous"}},
      {"k_step:period=16:reduction_momentum=0.5",
       "k_step-period=16-reduction_momentum=0.5",
       {"update.scheme=k_step", "update.period=16", "update.reduction_momentum=0.5"}},
      {"lazy:optimizer.learning_rate=0.05",
       "lazy-optimizer.learning_rate=0.05",
       {"update.scheme=lazy", "optimizer.learning_rate=0.05"}},
      {"lazy:data.path='/a b'",
       "lazy-data.path=__a_b_",
       {"update.scheme=lazy", "data.path='/a b'"}}};
  for (const Read& item : items) {
    EXPECT_EQ(parse_scheme_item(item.text).label, item.label);
    EXPECT_EQ(parse_scheme_item(item.text).settings, item.settings);
  }
  EXPECT_THAT(parse_scheme_item("lazy : max_interval = 4").settings,
              ElementsAre("update.scheme=lazy", "update.max_interval=4"));
}

// Colons and commas in quotes and brackets stay together.
TEST(SchemeItemTest, IsSplitFromListsAtCommas) {
  const auto items =
      parse_scheme_items({"lazy:transport.fabric='ucx:tcp,sm',k_step:data.shape=[8,8,1]", " c "});
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].settings.back(), "transport.fabric='ucx:tcp,sm'");
  EXPECT_EQ(items[1].settings.back(), "data.shape=[8,8,1]");
  EXPECT_EQ(items[2].label, "c");
}

struct Mistake {
  const char* items;
  const char* said;
};

TEST(SchemeItemTest, IsRefused) {
  const std::vector<Mistake> mistakes = {
      {"period=16", "'period=16': begins with no scheme's name"},
      {":period=16", "begins with no scheme's name"},
      {"k_step:period", "'period' is no setting"},
      {"k_step:=16", "'=16' is no setting"},
      {"k_step:", "'' is no setting"},
      {"synchronous,", "an item is empty"},
      {"", "an item is empty"},
      {"lazy:train.seed=3", "--seed-list"},
      {"k_step:scheme=lazy", "begins with its scheme"},
      {"k_step:update.scheme=lazy", "begins with its scheme"},
      {"lazy,lazy", "would share the folder lazy"},
      {"lazy:x='a b',lazy:x='a/b'", "would share the folder lazy-x=_a_b_"}};
  for (const auto& [items, said] : mistakes) EXPECT_THAT(complaint(items), HasSubstr(said));
}

// The record that `rondo compare` makes of a run folder.

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

// A value of the wrong type counts as absent.
TEST_F(RunRecordTest, PassesOverDamagedLinesAndValues) {
  const RunRecord record = read(
      "{\"event\": \"epo\n\n[1]\n\"epoch\"\n{\"event\": 7}\n" + epoch_line(50.0, 2.0) +
      R"({"event":"epoch","accuracy":null,"seconds":"long"})" + "\n" + R"({"event": "end", "rea)");
  ASSERT_EQ(record.epochs.size(), 2U);
  EXPECT_TRUE(std::isnan(record.epochs[1].accuracy));
  EXPECT_EQ(record.epochs[1].seconds, 0.0);
  EXPECT_FALSE(record.completed());
  EXPECT_FALSE(read_run_record(folder_.path() / "none").start.has_value());
}

TEST_F(RunRecordTest, FindsTheSameRunCompletedOrNot) {
  const std::string begun = start() + epoch_line(50.0, 2.0);
  EXPECT_EQ(find_run(folder_.path() / "none", wanted_).state, RunState::absent);
  EXPECT_EQ(find("").state, RunState::incomplete);
  EXPECT_EQ(find(begun).state, RunState::incomplete);
  EXPECT_EQ(find(begun + end_line("the loss became NaN")).state, RunState::incomplete);
  EXPECT_EQ(find(start() + end_line("completed")).state, RunState::incomplete);
  EXPECT_EQ(find(begun + end_line("max_steps")).state, RunState::completed);
  EXPECT_EQ(find(begun + end_line("completed")).state, RunState::completed);
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
  wanted_.fabric.fake_nodes = 2;
  EXPECT_EQ(find(begun).difference, "the number of nodes is 1, would be 2");
  wanted_.placement.threads = 4;
  EXPECT_EQ(find(begun).difference, "the number of threads is 1, would be 4");
  wanted_.placement.cores.resize(3);
  EXPECT_EQ(find(begun).difference, "the number of ranks is 2, would be 3");
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

// They are written one a line.
TEST_F(RunRecordTest, ComparesAllLayersOfACustomModel) {
  train::Experiment& wanted = wanted_.experiment;
  wanted.model.layers = {{.kind = "flatten"}, {.kind = "fully_connected", .outputs = 4}};
  EXPECT_EQ(first_difference(train::to_toml(wanted), wanted), "");
  train::Experiment other = wanted;
  other.model.layers[0].kind = "activation";
  EXPECT_THAT(first_difference(train::to_toml(other), wanted),
              HasSubstr("model.layers is [{kind = \"activation\""));
  EXPECT_EQ(keys_of("[model]\nlayers = [\n  {kind = 1},\n\n"),
            (std::vector<std::pair<std::string, std::string>>{{"model.layers", "[{kind = 1},]"}}));
}

TEST_F(RunRecordTest, AGridThatThePlannerChoseIsWhatWasAskedOfThePlanner) {
  train::Experiment recorded = wanted_.experiment;
  recorded.grid = {.sample = 1,
                   .filter = 2,
                   .plan = train::PlanChoice::chosen,
                   .layers = {{"conv1", "height=2"}}};
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment),
            "grid.sample is 1, would be 0");

  wanted_.experiment.grid.plan = train::PlanChoice::automatic;
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment), "");

  wanted_.experiment.grid.batch_norm = train::BatchNormScope::replica;
  EXPECT_EQ(first_difference(train::to_toml(recorded), wanted_.experiment),
            "grid.batch_norm is \"rank\", would be \"replica\"");
  recorded.grid.plan = train::PlanChoice::given;
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
  const fs::path checkpoints = folder_.path() / "checkpoints";
  fs::create_directories(checkpoints / "step-4");
  folder_.write("checkpoints/step-4/manifest.json", "text");
  fs::create_directories(checkpoints / "step-6.unfinished");
  folder_.write("checkpoints/mine.txt", "text");

  remove_run(folder_.path());
  remove_run(folder_.path() / "none");

  EXPECT_TRUE(fs::exists(checkpoints / "mine.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints), {}), 1);
  fs::remove(checkpoints / "mine.txt");
  remove_run(folder_.path());
  EXPECT_TRUE(fs::exists(folder_.path() / "mine.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

// As by hand, while the comparison goes on.
TEST_F(RunRecordTest, RemovesNothingOfARunThatIsBeingTrained) {
  folder_.write("metrics.jsonl", "text");
  std::optional<train::DirectoryLock> trainer(std::in_place, folder_.path());
  ASSERT_FALSE(trainer->is_in_use());

  EXPECT_THAT(rondo::test::error_text<UsageError>([&] { remove_run(folder_.path()); }),
              HasSubstr("another run is writing there"));
  EXPECT_TRUE(fs::exists(folder_.path() / "metrics.jsonl"));

  trainer.reset();
  remove_run(folder_.path());
  EXPECT_FALSE(fs::exists(folder_.path() / "metrics.jsonl"));
}

// The numbers that `rondo compare` computes from runs, and how its tables show them.

EpochRecord epoch(double accuracy, double seconds) {
  return {.accuracy = accuracy,
          .seconds = seconds,
          .global_reductions = 8,
          .local_reductions = 2,
          .bytes_sent = 1024};
}

RunRecord run(std::vector<EpochRecord> epochs) {
  return {.start = {}, .epochs = std::move(epochs), .end_reason = "completed"};
}

std::vector<RunRecord> two_runs() {
  return {run({epoch(80, 2), epoch(90, 4)}), run({epoch(88, 2), epoch(86, 2)})};
}

TEST(SummaryTest, GivesMeanAndDeviationOfASample) {
  const auto result = mean_and_deviation(std::array{1.0, 3.0, 5.0});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->mean, 3.0);
  EXPECT_EQ(result->deviation, 2.0);  // sqrt((4 + 0 + 4) / 2)
  EXPECT_EQ(mean_and_deviation(std::array{7.0})->mean, 7.0);
  EXPECT_FALSE(mean_and_deviation(std::array{7.0})->deviation.has_value());
  EXPECT_FALSE(mean_and_deviation({}).has_value());
}

TEST(SummaryTest, AddsUpSecondsUntilTheFirstEpochThatReachesTheAccuracy) {
  const RunRecord record = run({epoch(50, 1), epoch(70, 2), epoch(60, 4), epoch(80, 8)});
  EXPECT_EQ(seconds_to_accuracy(record, 70), 3.0);
  EXPECT_EQ(seconds_to_accuracy(record, 71), 15.0);
  EXPECT_EQ(seconds_to_accuracy(record, 10), 1.0);
  EXPECT_FALSE(seconds_to_accuracy(record, 81).has_value());
  EXPECT_EQ(seconds_to_accuracy(run({epoch(NAN, 1), epoch(70, 2)}), 0), 3.0);
}

TEST(SummaryTest, TakesMeansOverRunsOfTotalsOverEpochs) {
  const SchemeSummary row = summarise("lazy", 3, two_runs(), 89.0);

  EXPECT_EQ(row.done, 2U);
  EXPECT_EQ(row.final_accuracy->mean, 88.0);
  EXPECT_EQ(row.best_accuracy->mean, 89.0);
  EXPECT_EQ(row.global_reductions, 16.0);
  EXPECT_EQ(row.local_reductions, 4.0);
  EXPECT_EQ(row.bytes_sent, 2048.0);
  EXPECT_EQ(row.seconds, 5.0);
  EXPECT_EQ(row.reached, 1U);
  EXPECT_EQ(row.time_to_it, 6.0);
}

TEST(SummaryTest, HasNoGlobalBytesWhenARunDidNotRecordThem) {
  std::vector<RunRecord> runs = two_runs();
  for (EpochRecord& e : runs[0].epochs) e.global_bytes = 64;
  EXPECT_FALSE(summarise("lazy", 2, runs, {}).global_bytes.has_value());
  for (EpochRecord& e : runs[1].epochs) e.global_bytes = 32;
  EXPECT_EQ(summarise("lazy", 2, runs, {}).global_bytes, 96.0);
}

TEST(ComparisonTableTest, ShowsARowForEveryScheme) {
  const std::vector rows = {summarise("lazy", 2, two_runs(), 89.0),
                            summarise("k_step", 2, {}, 89.0)};
  const std::string text = comparison_table({.accuracy = 89.0}, rows).text();
  EXPECT_THAT(text, ContainsRegex("s to 89 % +s\n"));
  EXPECT_THAT(text, ContainsRegex("\nlazy +88.00 \\+- 2.83 +89.00 \\+- 1.41 +2/2 +16 +4 +2048 "
                                  "+6.0 \\(1/2\\) +5.0\n"));
  EXPECT_THAT(text, ContainsRegex("\nk_step +- +- +0/2 +- +- +- +- +-\n"));
}

TEST(ComparisonTableTest, LeavesOutWhatWasNotAskedForRecordedOrReached) {
  const std::string text = comparison_table({}, {summarise("lazy", 2, two_runs(), {})}).text();
  EXPECT_THAT(text, StartsWith("scheme"));
  EXPECT_THAT(text, Not(HasSubstr("s to")));
  EXPECT_THAT(text, Not(HasSubstr("global bytes")));
  const std::vector rows = {summarise("lazy", 2, two_runs(), 99.0)};
  EXPECT_THAT(comparison_table({.accuracy = 99.0}, rows).text(), HasSubstr("        -  5.0\n"));
}

TEST(ComparisonTableTest, WritesEveryColumnAsCsv) {
  const std::vector rows = {summarise("lazy", 2, {}, {}),
                            summarise("k_step", 1, std::array{run({epoch(80.5, 2)})}, 80.0)};
  const std::string text =
      comparison_table({.conditions = "a, \"b\"", .accuracy = 80.0}, rows).csv();
  EXPECT_THAT(text, StartsWith("scheme,final_accuracy,final_accuracy_deviation,"));
  EXPECT_THAT(text, HasSubstr("\nlazy,,,,,0,2,,,,,,80,0,,,\"a, \"\"b\"\"\"\n"));
  EXPECT_THAT(text, HasSubstr("\nk_step,80.5,,80.5,,1,1,8,2,1024,,,80,1,2,2,\"a, \"\"b\"\"\"\n"));
}

}  // namespace
}  // namespace rondo::tools::comparison_test
