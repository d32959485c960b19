// What `rondo compare` computes from runs, and how its tables show it.

#include "compare/runs.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::tools::compare_summary_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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
}

TEST(SummaryTest, GivesOneValueNoDeviationAndNoValueNoMean) {
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
}

TEST(SummaryTest, AnEpochWithoutAnAccuracyReachesNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_EQ(seconds_to_accuracy(run({epoch(nan, 1), epoch(70, 2)}), 0), 3.0);
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

TEST(ComparisonTableTest, LeavesOutWhatWasNotAskedForOrRecorded) {
  const std::string text = comparison_table({}, {summarise("lazy", 2, two_runs(), {})}).text();

  EXPECT_THAT(text, StartsWith("scheme"));
  EXPECT_THAT(text, Not(HasSubstr("s to")));
  EXPECT_THAT(text, Not(HasSubstr("global bytes")));
}

TEST(ComparisonTableTest, ShowsADashForAnAccuracyThatNoRunReached) {
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
}  // namespace rondo::tools::compare_summary_test
