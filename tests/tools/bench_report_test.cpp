// What `rondo bench` makes of its samples, and what it says about them.

#include "bench/measure.hpp"

#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::tools::bench_report_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

BenchRow row_of_a_mebibyte() {
  BenchRow row;
  row.bytes = 1 << 20;
  row.count = 1 << 18;
  row.type = "f32";
  row.op = "sum";
  row.ranks = 4;
  row.memory = "arena";
  row.place = "in";
  row.time = {100.0, 1024.0, 2000.0};
  row.bus_factor = 1.5;
  return row;
}

TEST(BenchReportTest, CountsBandwidthInDecimalGigabytes) {
  const BenchRow row = row_of_a_mebibyte();

  EXPECT_DOUBLE_EQ(row.algorithm_gb_per_second(), 1.024);
  EXPECT_DOUBLE_EQ(row.bus_gb_per_second(), 1.024 * 1.5);
}

TEST(BenchReportTest, HasOneRowForEachMeasurementUnderStableNames) {
  EXPECT_EQ(table_of({row_of_a_mebibyte()}).csv(),
            "bytes,count,type,op,ranks,memory,place,min_us,median_us,p99_us,algbw_GBs,busbw_GBs,"
            "wrong\n"
            "1048576,262144,f32,sum,4,arena,in,100,1024,2000,1.024,1.536,0\n");
}

TEST(BenchReportTest, AddsTheLimitWhereItWasMeasured) {
  BenchRow row = row_of_a_mebibyte();
  row.limit_us = 512.0;

  const auto rows = nlohmann::ordered_json::parse(table_of({row}).json());

  EXPECT_EQ(rows[0]["limit_us"], 512.0);
  EXPECT_EQ(rows[0]["percent"], 50.0);
}

TEST(BenchReportTest, LabelsInjectedDelaysInEveryFormat) {
  BenchRow row = row_of_a_mebibyte();
  row.injected = "2us+1GB/s";
  const Table table = table_of({row});

  EXPECT_EQ(nlohmann::json::parse(table.json())[0]["injected"], "2us+1GB/s");
  EXPECT_THAT(table.csv(), testing::EndsWith(",2us+1GB/s\n"));
  EXPECT_THAT(table.text(), testing::EndsWith(" 2us+1GB/s\n"));
}

// 1 GB/s.
BenchRow right_row() {
  BenchRow row;
  row.bytes = 1000;
  row.memory = "arena";
  row.place = "in";
  row.time = {1.0, 1.0, 1.0};
  return row;
}

TEST(BenchVerdictTest, HasNothingToSayAboutARightRow) {
  EXPECT_THAT(complaints({right_row()}, 0.0), IsEmpty());
}

TEST(BenchVerdictTest, CountsWrongElementsAndSaysWhere) {
  BenchRow row = right_row();
  row.wrong = 3;

  EXPECT_THAT(complaints({right_row(), row}, 0.0),
              ElementsAre(AllOf(HasSubstr("1000 bytes"), HasSubstr("3 elements are wrong"))));
}

TEST(BenchVerdictTest, SaysWhichRowIsTooSlow) {
  BenchRow slow = right_row();
  slow.bytes = 500;

  EXPECT_THAT(complaints({right_row(), slow}, 1.0),
              ElementsAre(AllOf(HasSubstr("500 bytes"), HasSubstr("0.500 GB/s is below 1 GB/s"))));
}

TEST(SamplesTest, FindsMinimumMedianAndP99InAnyOrder) {
  std::vector<double> samples(101);
  std::iota(samples.rbegin(), samples.rend(), 0.0);

  const Summary summary = summarize(samples);

  EXPECT_EQ(summary.min_us, 0.0);
  EXPECT_EQ(summary.median_us, 50.0);
  EXPECT_EQ(summary.p99_us, 99.0);
}

TEST(SamplesTest, TakesOneSampleForAll) {
  const Summary summary = summarize({3.0});

  EXPECT_EQ(summary.min_us, 3.0);
  EXPECT_EQ(summary.median_us, 3.0);
  EXPECT_EQ(summary.p99_us, 3.0);
}

TEST(SamplesTest, RefusesNone) {
  EXPECT_THROW(static_cast<void>(summarize({})), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::tools::bench_report_test
