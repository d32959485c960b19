// `rondo plan` as a program.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const char* const alexnet = R"(
[data]
name = "synthetic"
[model]
name = "alexnet-2012"
[train]
global_batch = 2048
)";

class PlanTest : public testing::Test {
 protected:
  PlanTest() { scratch_.write("alexnet.toml", alexnet); }

  [[nodiscard]] Ended plan(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"plan", scratch_.path() / "alexnet.toml"};
    words.insert(words.end(), more.begin(), more.end());
    return rondo(words);
  }

  [[nodiscard]] nlohmann::json plans(std::vector<std::string> more) const {
    more.insert(more.end(), {"--format", "json"});
    const Ended ended = plan(more);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return nlohmann::json::parse(ended.out);
  }

 private:
  rondo::test::ScratchFolder scratch_;
};

TEST_F(PlanTest, PrintsAnArrayOfOneObjectPerGrid) {
  const auto array = plans({"--ranks", "512", "--strategy", "batch"});

  ASSERT_THAT(array, SizeIs(1));
  std::vector<std::string> names;
  for (const auto& member : array[0].items()) names.push_back(member.key());
  EXPECT_THAT(
      names, testing::UnorderedElementsAre("strategy", "ranks", "pr", "pc", "communication_seconds",
                                           "compute_seconds", "bytes_per_rank", "refused"));
  EXPECT_EQ(array[0]["ranks"], 512);
  EXPECT_EQ(array[0]["pc"], 512);
  EXPECT_NEAR(array[0]["communication_seconds"].get<double>(),
              2 * (8 * 9 * 2e-6 + 4 / 6e9 * 511 / 512 * 62'367'776.0), 1e-12);
  EXPECT_TRUE(array[0]["compute_seconds"].is_null());
  EXPECT_TRUE(array[0]["refused"].is_null());
}

TEST_F(PlanTest, ListsEveryGridWithASamplePerColumn) {
  const auto array = plans({"--ranks", "4096", "--strategy", "grid"});

  EXPECT_THAT(array, SizeIs(12));  // P_r = 2, 4, ..., 4096
  for (const auto& grid : array) EXPECT_LE(grid["pc"], 2048);
}

TEST_F(PlanTest, TakesAlphaBandwidthAndFlops) {
  const auto grid = plans({"--ranks", "2", "--strategy", "batch", "--alpha", "1", "--bandwidth",
                           "4", "--flops", "1e12"})[0];

  EXPECT_DOUBLE_EQ(grid["communication_seconds"], 2 * (8 + 62'367'776.0 / 2));
  EXPECT_GT(grid["compute_seconds"], 0.0);
}

TEST_F(PlanTest, AsksTheNodeForItsOwnCosts) {
  const auto grid = plans({"--ranks", "2", "--strategy", "batch", "--ranks-per-node", "2",
                           "--node-alpha", "1", "--node-bandwidth", "4"})[0];

  EXPECT_DOUBLE_EQ(grid["communication_seconds"], 2 * (8 + 62'367'776.0 / 2));
}

TEST_F(PlanTest, RefusesGridsThatNeedTooMuchMemory) {
  const auto grid = plans({"--ranks", "8", "--strategy", "batch", "--memory-limit", "1MiB"})[0];

  EXPECT_THAT(grid["refused"].get<std::string>(), HasSubstr("more than the 1048576 allowed"));
}

TEST_F(PlanTest, RanksAllStrategiesInATable) {
  const Ended ended = plan({"--ranks", "512"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::vector<std::string> text = lines(ended.out);
  EXPECT_THAT(text[0], HasSubstr("alexnet-2012, 2048 samples a step on 512 ranks"));
  EXPECT_THAT(text[2], HasSubstr("integrated     32    16"));
  EXPECT_THAT(ended.out, HasSubstr("fc6                     filters 32 x batch 16"));
}

TEST_F(PlanTest, SaysThatThereIsNoSearchYet) {
  const Ended ended = plan({"--ranks", "8", "--strategy", "best"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("not there yet")));
}

TEST_F(PlanTest, RefusesModelsThatDoNotFitThePictures) {
  const Ended ended = plan({"--ranks", "8", "--set", "data.name=fashion-mnist"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("does not fit the pictures")));
}

TEST_F(PlanTest, RefusesRanksThatDoNotFillTheirNodes) {
  const Ended ended = plan({"--ranks", "6", "--ranks-per-node", "4"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("multiple of the ranks per node")));
}

}  // namespace
}  // namespace rondo::tools::test
