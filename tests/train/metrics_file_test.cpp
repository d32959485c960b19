// The files that a run writes while it goes on: metrics, losses, the turns of a cyclic run, times
// of kernels.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "plan/compute_table.hpp"
#include "schemes/cyclic.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"
#include "support/world.hpp"
#include "trainer/meters.hpp"
#include "trainer/run_log.hpp"

namespace rondo::train::metrics_file_test {
namespace {

using Kind = sync::Turn::Kind;
using rondo::test::error_text;
using rondo::test::World;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;

// metrics.jsonl: a whole line per event, at once, or an error that says why not; and with the names
// that docs/metrics.md gives.

class MetricsFileTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "metrics.jsonl"; }
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> result;
    std::ifstream stream(file());
    for (std::string line; std::getline(stream, line);)
      result.push_back(nlohmann::json::parse(line));
    return result;
  }

 private:
  rondo::test::ScratchFolder folder_;
};

TEST_F(MetricsFileTest, EachEventIsALineThatCanBeReadAtOnce) {
  MetricsFile metrics(file());

  metrics.write(StartEvent{.config = "[data]\nname = \"x\"\n", .ranks = 2});
  ASSERT_EQ(lines().size(), 1U);
  metrics.write(StepEvent{.epoch = 1, .step = 50});
  metrics.write(EpochMetrics{.epoch = 1, .accuracy = 12.5});
  metrics.write(RunSummary{.reason = "completed"});

  const auto written = lines();
  ASSERT_EQ(written.size(), 4U);
  EXPECT_EQ(written[0].at("event"), "start");
  EXPECT_EQ(written[0].at("config"), "[data]\nname = \"x\"\n");
  EXPECT_EQ(written[1].at("step"), 50);
  EXPECT_EQ(written[2].at("accuracy"), 12.5);
  EXPECT_EQ(written[3].at("reason"), "completed");
}

using Fields = std::map<std::string, std::set<std::string>>;  // by event

// The rows "| field | ..." under the headings "## EVENT" of the page.
Fields documented_fields() {
  Fields fields;
  std::string event;
  std::ifstream page(rondo::test::sources() / "docs" / "metrics.md");
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) event = line.substr(3);
    if (!line.starts_with("| ") || line.starts_with("| field |")) continue;
    fields[event].insert(line.substr(2, line.find(' ', 2) - 2));
  }
  // It says what the start of its part would.
  fields["resume"].insert(fields["start"].begin(), fields["start"].end());
  return fields;
}

TEST_F(MetricsFileTest, ThePageNamesEveryEventAndField) {
  MetricsFile metrics(file());
  metrics.write(StartEvent{});
  metrics.write(ResumeEvent{});
  metrics.write(StepEvent{});
  metrics.write(EpochMetrics{});
  metrics.write(sync::LazyWindow{});
  metrics.write(sync::Round{});
  metrics.write(sync::Push{});
  metrics.write(RunSummary{});

  Fields written;
  for (const nlohmann::json& line : lines()) {
    for (const auto& item : line.items())
      if (item.key() != "event") written[line.at("event")].insert(item.key());
  }

  EXPECT_THAT(documented_fields(), testing::ContainerEq(written));
}

TEST_F(MetricsFileTest, ANumberThatJsonCannotHoldIsNull) {
  MetricsFile metrics(file());
  metrics.write(StepEvent{.loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_TRUE(lines().at(0).at("loss").is_null());
}

TEST_F(MetricsFileTest, GoesOnWhereItWasCut) {
  MetricsFile metrics(file());
  metrics.write(StepEvent{.step = 1});
  const std::uint64_t end = metrics.bytes();
  metrics.write(StepEvent{.step = 2});
  metrics.write(StepEvent{.step = 3});

  MetricsFile again(file());
  again.cut(end);
  again.write(StepEvent{.step = 4});

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0].at("step"), 1);
  EXPECT_EQ(lines()[1].at("step"), 4);
}

TEST_F(MetricsFileTest, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_THAT(
      error_text<DataError>([&] { MetricsFile(file() / "no" / "metrics.jsonl"); }),
      HasSubstr("metrics.jsonl: cannot be written: No such file or directory; give the run"));
  MetricsFile metrics("/dev/full");
  EXPECT_THAT(error_text<DataError>([&] { metrics.write(RunSummary{}); }),
              HasSubstr("/dev/full: cannot be written: No space left on device"));
}

// Whoever wrote on would lose all that follows.
TEST_F(MetricsFileTest, AFileThatHasLostItsNameIsAnError) {
  MetricsFile metrics(file());
  metrics.write(StepEvent{.step = 1});
  std::filesystem::resize_file(file(), 0);  // as logs are rotated; the file is the same
  EXPECT_NO_THROW(metrics.write(StepEvent{.step = 2}));

  const std::filesystem::path moved = file().parent_path() / "moved";
  std::filesystem::rename(file(), moved);
  EXPECT_THAT(error_text<DataError>([&] { metrics.write(StepEvent{.step = 3}); }),
              HasSubstr("was removed or renamed while the run was"));
  EXPECT_THROW(static_cast<void>(metrics.bytes()), DataError);
  std::ofstream(file()) << "{}\n";
  EXPECT_THAT(error_text<DataError>([&] { metrics.write(StepEvent{.step = 3}); }),
              AllOf(HasSubstr("was replaced while the run was writing"),
                    HasSubstr("go on with --resume auto")));
  std::filesystem::rename(moved, file());
  EXPECT_NO_THROW(metrics.write(StepEvent{.step = 3}));

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[1].at("step"), 3);
}

// The file is another one then, with the same name.
TEST_F(MetricsFileTest, GoesOnBehindWhatWasPutInItsPlace) {
  MetricsFile metrics(file());
  metrics.write(StepEvent{.step = 1});

  metrics.replace("{\"step\":2}\n");
  metrics.write(StepEvent{.step = 3});

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0].at("step"), 2);
  EXPECT_EQ(lines()[1].at("step"), 3);
}

// A run that was taken for one that has not begun would be replaced.
TEST(CompletedRunTest, IsNotJudgedByAFileThatCannotBeRead) {
  const rondo::test::ScratchFolder folder;
  EXPECT_FALSE(has_completed(folder.path() / "no run"));
  std::filesystem::create_symlink("metrics.jsonl", folder.path() / "metrics.jsonl");
  EXPECT_THAT(error_text<DataError>([&] { return has_completed(folder.path()); }),
              HasSubstr("metrics.jsonl: cannot be read: Too many levels of symbolic links"));
  std::filesystem::remove(folder.path() / "metrics.jsonl");
  std::filesystem::create_directory(folder.path() / "metrics.jsonl");
  EXPECT_THAT(error_text<DataError>([&] { return has_completed(folder.path()); }),
              HasSubstr("metrics.jsonl: cannot be read: Is a directory"));
}

// The training loss over ranks, and what happens when it is no longer a number.

TEST(LossMeterTest, AddsUpAllRanksSinceTheLastLook) {
  World{3}.run([](transport::World& world) {
    TrafficMeter traffic(world);
    LossMeter meter(world, traffic);
    meter.start();
    meter.add(1, {.loss = 1.0 + world.rank(), .correct = 1, .samples = 2});
    const LossSums first = meter.reduce();
    meter.add(2, {.loss = 10.0, .correct = 2, .samples = 4});

    const LossSums second = meter.reduce();

    EXPECT_EQ(first.loss, 6.0);
    EXPECT_EQ(first.accuracy(), 50.0);
    EXPECT_EQ(second.loss, 30.0);
    EXPECT_EQ(second.mean_loss(), 2.5);
    EXPECT_EQ(meter.total().loss, 36.0);
    EXPECT_EQ(meter.total().samples, 18.0);
    EXPECT_EQ(meter.own().loss, 11.0 + world.rank());
    meter.add(3, {.loss = 5.0, .samples = 1});
    meter.start();
    EXPECT_EQ(meter.reduce().loss, 0.0) << "a new epoch begins at zero";
    EXPECT_EQ(meter.total().samples, 0.0);
    EXPECT_EQ(meter.total().mean_loss(), 0.0);
  });
}

// JSON has no number for 0/0.
TEST(TrafficTest, NoSecondsHaveNoShares) {
  EXPECT_EQ(per_second(0.0, 0.0), 0.0);
  EXPECT_EQ(per_second(3.0, 2.0), 1.5);
  EXPECT_EQ(Traffic{}.communication_share(), 0.0);
}

TEST(LossMeterTest, NamesTheFirstBadStepOnEveryRank) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    World{3}.run([bad](transport::World& world) {
      TrafficMeter traffic(world);
      LossMeter meter(world, traffic);
      meter.start();
      for (std::int64_t step = 1; step <= 9; ++step) {
        const bool broken = step >= 7 - world.rank();  // first on rank 2, in step 5
        meter.add(step, {.loss = broken ? bad : 1.0, .samples = 1});
      }

      EXPECT_THAT(error_text<NumericError>([&] { meter.reduce(); }), HasSubstr("in step 5;"));
    });
  }
}

// The turns of a cyclic run, written and read again.

// But for the pushes of a flush.
TEST(TokenTraceTest, ReadsBackWhatWasWritten) {
  const rondo::test::ScratchFolder folder;
  const auto file = folder.path() / "trace.jsonl";
  const sync::Turn push{Kind::push, 0, 3};
  const sync::Turn skip{Kind::skip, 1, 0};
  const sync::Turn park{Kind::park, 1, 2};
  append_token_trace(file, {{.turn = push}, {.turn = skip}});
  append_token_trace(file, {{.turn = park}, {.turn = {Kind::push, 1, 2}, .by_flush = true}});
  EXPECT_THAT(read_token_trace(file, 2), testing::ElementsAre(push, skip, park));
}

TEST(TokenTraceTest, NamesTheLineThatIsNoTurn) {
  const rondo::test::ScratchFolder folder;
  const std::string good = "{\"worker\":1,\"kind\":\"push\",\"minibatches\":3}\n";
  for (const char* bad : {"x", "{}", "3", "{\"worker\":2,\"kind\":\"push\",\"minibatches\":3}",
                          "{\"worker\":0,\"kind\":\"pull\",\"minibatches\":3}",
                          "{\"worker\":0,\"kind\":\"push\",\"minibatches\":-1}"}) {
    const auto file = folder.write("trace.jsonl", good + bad + "\n");

    EXPECT_THAT(error_text<ConfigError>([&] { return read_token_trace(file, 2); }),
                HasSubstr("trace.jsonl:2: is no turn of one of 2 workers"))
        << bad;
  }
}

TEST(TokenTraceTest, RefusesAFileThatRepeatsNothing) {
  const rondo::test::ScratchFolder folder;
  const auto file = folder.write("trace.jsonl", "");
  EXPECT_THAT(error_text<ConfigError>([&] { return read_token_trace(folder.path(), 2); }),
              HasSubstr(" cannot be read"));
  EXPECT_THAT(error_text<ConfigError>([&] { return read_token_trace(file, 2); }),
              HasSubstr("trace.jsonl has no turns, so that nothing would be repeated"));
  EXPECT_THAT(error_text<ConfigError>([] { return read_token_trace("/nonexistent", 2); }),
              HasSubstr("update.replay: /nonexistent cannot be read"));
}

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(TimeFileTest, KeepsAllButImpossibleTimesAndLeavesNothingAside) {
  const rondo::test::ScratchFolder scratch;
  const std::filesystem::path file = scratch.path() / "new" / "times.json";
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  write_times(file, {{"a", {.forward = 0.1, .backward_weights = 2e-7, .backward_data = 3.0}},
                     {"refused", {infinity, infinity, infinity}},
                     {"half", {.forward = 0.1, .backward_weights = 0.1, .backward_data = infinity}},
                     {"unknown", {.forward = nan}}});
  const std::map<std::string, WorkSeconds> times = read_times(file);

  ASSERT_THAT(times, ElementsAre(Key("a")));
  EXPECT_EQ(times.at("a").forward, 0.1);
  EXPECT_EQ(times.at("a").backward_weights, 2e-7);
  EXPECT_EQ(times.at("a").backward_data, 3.0);
  std::ifstream in(file);
  EXPECT_EQ(nlohmann::json::parse(in).at("seconds").size(), 1U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.parent_path()), {}), 1);
}

TEST(TimeFileTest, PassesOverImpossibleTimesOfOlderPrograms) {
  const rondo::test::ScratchFolder scratch;
  const std::filesystem::path file = scratch.write("times.json", R"({"format": 1, "seconds": {
      "a": [0.1, 0.2, 0.3], "refused": [null, null, null], "half": [0.1, 0.1, null]}})");
  EXPECT_THAT(read_times(file), ElementsAre(Key("a")));
}

TEST(TimeFileTest, KnowsNothingOfOtherFiles) {
  const rondo::test::ScratchFolder scratch;
  for (const char* text : {"", "[]", "{\"format\": 2, \"seconds\": {}}", "{\"format\": 1}",
                           "{\"format\": 1, \"seconds\": {\"a\": [1, 2]}}"}) {
    EXPECT_TRUE(read_times(scratch.write("times.json", text)).empty()) << text;
  }
  EXPECT_TRUE(read_times(scratch.path() / "absent.json").empty());
}

}  // namespace
}  // namespace rondo::train::metrics_file_test
