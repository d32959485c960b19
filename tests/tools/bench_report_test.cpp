#include "bench/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rondo::tools::bench_report_test {
namespace {

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

std::vector<std::string> keys(const nlohmann::ordered_json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names;
}

TEST(BenchReportTest, CountsBandwidthInDecimalGigabytes) {
  const BenchRow row = row_of_a_mebibyte();

  EXPECT_DOUBLE_EQ(row.algorithm_gb_per_second(), 1.024);
  EXPECT_DOUBLE_EQ(row.bus_gb_per_second(), 1.024 * 1.5);
}

TEST(BenchReportTest, NamesTheColumnsOfJsonExactly) {
  const auto rows = nlohmann::ordered_json::parse(as_json({row_of_a_mebibyte()}));

  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(keys(rows[0]), testing::ElementsAre("bytes", "count", "type", "op", "ranks", "memory",
                                                  "place", "min_us", "median_us", "p99_us",
                                                  "algbw_GBs", "busbw_GBs", "wrong"));
}

TEST(BenchReportTest, AddsTheLimitWhereItWasMeasured) {
  BenchRow row = row_of_a_mebibyte();
  row.limit_us = 512.0;

  const auto rows = nlohmann::ordered_json::parse(as_json({row}));

  EXPECT_EQ(rows[0]["limit_us"], 512.0);
  EXPECT_EQ(rows[0]["percent"], 50.0);
}

TEST(BenchReportTest, LabelsInjectedDelaysInEveryFormat) {
  BenchRow row = row_of_a_mebibyte();
  row.injected = "2us+1GB/s";

  EXPECT_EQ(nlohmann::json::parse(as_json({row}))[0]["injected"], "2us+1GB/s");
  EXPECT_THAT(as_csv({row}), testing::EndsWith(",2us+1GB/s\n"));
  EXPECT_THAT(as_table({row}), testing::EndsWith(" 2us+1GB/s\n"));
}

TEST(BenchReportTest, WritesOneLineARowAsCsv) {
  EXPECT_EQ(as_csv({row_of_a_mebibyte()}),
            "bytes,count,type,op,ranks,memory,place,min_us,median_us,p99_us,algbw_GBs,busbw_GBs,"
            "wrong\n"
            "1048576,262144,f32,sum,4,arena,in,100.00,1024.00,2000.00,1.02,1.54,0\n");
}

TEST(BenchReportTest, WritesNothingAboutNoRows) {
  EXPECT_EQ(as_table({}), "");
  EXPECT_EQ(as_csv({}), "");
  EXPECT_EQ(as_json({}), "[]\n");
}

}  // namespace
}  // namespace rondo::tools::bench_report_test
