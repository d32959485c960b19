#include "bench/allreduce_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rondo::tools {
namespace {

AllreduceRow row_of_a_mebibyte() {
  AllreduceRow row;
  row.bytes = 1 << 20;
  row.ranks = 4;
  row.memory = "arena";
  row.time = {100.0, 1024.0, 2000.0};
  return row;
}

std::vector<std::string> keys(const nlohmann::ordered_json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names;
}

TEST(AllreduceReportTest, CountsBandwidthInDecimalGigabytes) {
  const AllreduceRow row = row_of_a_mebibyte();

  EXPECT_DOUBLE_EQ(row.algorithm_gb_per_second(), 1.024);
  EXPECT_DOUBLE_EQ(row.bus_gb_per_second(), 1.024 * 1.5);
}

TEST(AllreduceReportTest, NamesTheColumnsOfJsonExactly) {
  const auto rows = nlohmann::ordered_json::parse(as_json({row_of_a_mebibyte()}));

  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(keys(rows[0]), testing::ElementsAre("bytes", "ranks", "memory", "min_us", "median_us",
                                                  "p99_us", "algbw_GBs", "busbw_GBs", "wrong"));
}

TEST(AllreduceReportTest, AddsTheLimitWhereItWasMeasured) {
  AllreduceRow row = row_of_a_mebibyte();
  row.limit_us = 512.0;

  const auto rows = nlohmann::ordered_json::parse(as_json({row}));

  EXPECT_EQ(rows[0]["limit_us"], 512.0);
  EXPECT_EQ(rows[0]["percent"], 50.0);
}

TEST(AllreduceReportTest, WritesOneLineARowAsCsv) {
  EXPECT_EQ(as_csv({row_of_a_mebibyte()}),
            "bytes,ranks,memory,min_us,median_us,p99_us,algbw_GBs,busbw_GBs,wrong\n"
            "1048576,4,arena,100.00,1024.00,2000.00,1.02,1.54,0\n");
}

}  // namespace
}  // namespace rondo::tools
