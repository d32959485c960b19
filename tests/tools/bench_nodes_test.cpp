// `rondo bench` as a program, between nodes that are made up.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace rondo::test::bench_nodes_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// Two nodes on one machine need no plug-in.
std::vector<std::string> on_two_nodes(const std::string& name,
                                      const std::vector<std::string>& more) {
  std::vector<std::string> command = {"bench",    name,  "-n",       "2",    "--fake-nodes", "2",
                                      "--fabric", "shm", "--format", "json", "--iterations", "2"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

class BenchNodesTest : public testing::TestWithParam<const char*> {};

TEST_P(BenchNodesTest, FindsEveryElementRight) {
  const Ended ended = rondo(on_two_nodes(GetParam(), {"-m", "64:64K"}));

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("2 ranks on 2 nodes"));
  for (const auto& row : nlohmann::json::parse(ended.out)) EXPECT_EQ(row["wrong"], 0) << row;
}

INSTANTIATE_TEST_SUITE_P(All, BenchNodesTest,
                         testing::Values("latency", "bandwidth", "allreduce", "reduce_scatter",
                                         "allgather", "broadcast", "reduce", "alltoall",
                                         "segmented", "halo"),
                         [](const auto& name) { return std::string(name.param); });

TEST(BenchNodesLabelTest, MarksRowsWhoseLinksWereSlowed) {
  const Ended ended = rondo(on_two_nodes("token", {"--latency-us", "5"}));

  EXPECT_EQ(ended.status, 0) << ended.err;
  const auto rows = nlohmann::json::parse(ended.out);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0]["injected"], "5us");
  EXPECT_GE(rows[0]["min_us"], 5.0);
  EXPECT_THAT(ended.err, HasSubstr("injected"));
}

TEST(BenchNodesLabelTest, NamesTheLinkBetweenNodes) {
  const Ended ended = rondo(on_two_nodes("barrier", {}));

  EXPECT_THAT(ended.err, testing::ContainsRegex("between nodes: shm: .* \\(version [0-9.]+\\)"));
}

TEST(BenchTuneTest, FindsWhatBothLevelsCostAndATable) {
  const Ended ended = rondo({"bench", "tune", "-n", "3", "--fake-nodes", "2", "--fabric", "shm",
                             "--iterations", "2", "--format", "json"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto tuning = nlohmann::json::parse(ended.out);
  ASSERT_THAT(tuning["levels"], SizeIs(2));
  EXPECT_EQ(tuning["levels"][0]["level"], "node");
  EXPECT_EQ(tuning["levels"][1]["level"], "fabric");
  for (const auto& level : tuning["levels"]) {
    EXPECT_GE(level["alpha_seconds"], 0.0);
    EXPECT_GE(level["beta_seconds_per_byte"], 0.0);
  }
  EXPECT_THAT(tuning["allreduce"].get<std::string>(),
              testing::MatchesRegex("(rd:0-[0-9]+[km]?;ring:[0-9]+[km]?|rd:0|ring:0)-max"));
}

TEST(BenchTuneTest, GivesATableThatTheBenchTakes) {
  const Ended tuning = rondo({"bench", "tune", "-n", "2", "--fake-nodes", "2", "--fabric", "shm",
                              "--iterations", "2", "--format", "json"});
  const std::string table = nlohmann::json::parse(tuning.out)["allreduce"];

  const Ended ended = rondo(on_two_nodes("allreduce", {"-m", "64", "--algorithms", table}));

  EXPECT_EQ(ended.status, 0) << ended.err;
}

TEST(BenchTuneTest, RefusesATableThatMakesNoSense) {
  const Ended ended = rondo(on_two_nodes("allreduce", {"-m", "64", "--algorithms", "rd:0-16k"}));

  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("rd:0-16k"));
}

}  // namespace
}  // namespace rondo::test::bench_nodes_test
