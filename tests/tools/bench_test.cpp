// `rondo bench allreduce` as a program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.hpp"

namespace rondo::tools::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

nlohmann::json rows_of(const Ended& ended) { return nlohmann::json::parse(ended.out); }

TEST(BenchTest, PrintsOneJsonArrayAndNothingElse) {
  const Ended ended = rondo(
      {"bench", "allreduce", "-n", "2", "-m", "4:64K", "--iterations", "5", "--format", "json"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  const auto rows = rows_of(ended);
  ASSERT_THAT(rows, SizeIs(2 * 8));  // 4 bytes to 64 KiB by fours, in two kinds of memory
  for (const auto& row : rows) {
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["min_us"], 0.0);
    EXPECT_LE(row["min_us"], row["median_us"]);
    EXPECT_LE(row["median_us"], row["p99_us"]);
  }
}

TEST(BenchTest, MeasuresOnlyTheMemoryAskedFor) {
  const Ended ended = rondo({"bench", "allreduce", "-n", "2", "-m", "4K", "--memory", "private",
                             "--iterations", "5", "--format", "json"});

  const auto rows = rows_of(ended);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0]["memory"], "private");
}

TEST(BenchTest, MeasuresTheLimitInTurn) {
  const Ended ended = rondo({"bench", "allreduce", "-n", "2", "-m", "4K", "--memory", "arena",
                             "--iterations", "5", "--limit", "--format", "json"});

  const auto rows = rows_of(ended);
  EXPECT_GT(rows[0]["limit_us"], 0.0);
  EXPECT_GT(rows[0]["percent"], 0.0);
  EXPECT_EQ(rows[0]["wrong"], 0);
}

TEST(BenchTest, RunsAsARankOfRondoRun) {
  const Ended ended = rondo({"run", "-n", "3", "--", rondo_path(), "bench", "allreduce", "-m", "64",
                             "--iterations", "5", "--format", "json"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(rows_of(ended)[0]["ranks"], 3);
}

TEST(BenchTest, MeasuresMoreRanksThanCores) {
  const Ended ended = rondo({"bench", "allreduce", "-n", "8", "-m", "1K", "--iterations", "5",
                             "--limit", "--format", "json"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(rows_of(ended)[0]["wrong"], 0);
}

TEST(BenchTest, FindsMistakesBeforeItStartsRanks) {
  const Ended ended = rondo({"bench", "allreduce", "-m", "7"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("not a multiple of 4")));
}

}  // namespace
}  // namespace rondo::tools::test
