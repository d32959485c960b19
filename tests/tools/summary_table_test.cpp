// The table at the end of a run.

#include "train/summary_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rondo::tools::summary_table_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

train::RunSummary some_summary() {
  train::RunSummary summary;
  summary.scheme = "k_step";
  summary.training_seconds = 20.0;
  summary.communication_seconds = 1.0;
  summary.wait_seconds = 4.0;
  summary.global_reductions = 10;
  summary.synchronous_reductions = 160;
  summary.global_bytes = 10 << 20;
  summary.synchronous_bytes = 160 << 20;
  summary.bytes_sent = 15 << 20;
  summary.synchronous_bytes_sent = 240 << 20;
  return summary;
}

TEST(SummaryTableTest, SetsReductionsAndBytesBesideThoseOfSynchronous) {
  const std::string text = format_summary(some_summary());

  EXPECT_THAT(text, ContainsRegex("communication +k_step +synchronous"));
  EXPECT_THAT(text, ContainsRegex("global reductions +10 +160   93.75 % less, 150 avoided"));
  EXPECT_THAT(text, ContainsRegex("bytes reduced +10.0 MiB +160.0 MiB   93.75 % less"));
  EXPECT_THAT(text, ContainsRegex("bytes sent +15.0 MiB +240.0 MiB   93.75 % less"));
}

TEST(SummaryTableTest, TellsTheSharesOfTheTime) {
  EXPECT_THAT(format_summary(some_summary()),
              HasSubstr("of 20.0 s of training 1.0 s (5.0 %) were communication and 4.0 s (20.0 %) "
                        "waiting"));
}

TEST(SummaryTableTest, TellsWhatLazyLayersHaveSaved) {
  train::RunSummary summary = some_summary();
  EXPECT_THAT(format_summary(summary), Not(HasSubstr("lazy")));
  summary.lazy_iterations = 100;
  summary.lazy_reductions = 20;

  EXPECT_THAT(format_summary(summary), ContainsRegex("of lazy layers +20 +100   80.00 % saved"));
}

TEST(SummaryTableTest, LabelsInjectedDelays) {
  train::RunSummary summary = some_summary();
  EXPECT_THAT(format_summary(summary), Not(HasSubstr("injected")));
  summary.injected = {"rank 3 computes 4 times as slowly", "10 us of latency between nodes"};

  EXPECT_THAT(format_summary(summary),
              HasSubstr("injected delays: rank 3 computes 4 times as slowly; 10 us of latency"));
}

TEST(SummaryTableTest, SaysMoreWhereThereIsMore) {
  train::RunSummary summary = some_summary();
  summary.local_reductions = 30;
  summary.local_bytes = 190 << 20;
  summary.bytes_sent = summary.synchronous_bytes_sent;
  const std::string text = format_summary(summary);

  EXPECT_THAT(text, ContainsRegex("local reductions +30 +0"));
  EXPECT_THAT(text, ContainsRegex("bytes reduced +200.0 MiB +160.0 MiB   25.00 % more"));
  EXPECT_THAT(text, ContainsRegex("bytes sent +240.0 MiB +240.0 MiB   as synchronous"));
}

}  // namespace
}  // namespace rondo::tools::summary_table_test
