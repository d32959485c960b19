// `rondo plan` as a program.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::plan_test {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
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
  PlanTest() {
    scratch_.write("alexnet.toml", alexnet);
    scratch_.write("lenet.toml", "data.name = \"synthetic\"\nmodel.name = \"lenet5\"\n");
  }

  [[nodiscard]] std::filesystem::path folder() const { return scratch_.path(); }
  [[nodiscard]] std::filesystem::path lenet() const { return folder() / "lenet.toml"; }
  void write(const std::string& name, const std::string& text) const { scratch_.write(name, text); }

  [[nodiscard]] Ended plan(const Words& more) const {
    return rondo(joined({"plan", folder() / "alexnet.toml"}, more));
  }

  [[nodiscard]] nlohmann::json plans(const Words& more) const {
    const Ended ended = plan(joined(more, {"--format", "json"}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return nlohmann::json::parse(ended.out);
  }

 private:
  ScratchFolder scratch_;
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

// As on a CPU without bf16; closed forms and --flops measure nothing.
TEST_F(PlanTest, RefusesToMeasureBf16WhereTheCpuDoesNotComputeIt) {
  const Environment old_cpu = {{"ONEDNN_MAX_CPU_ISA", "AVX2"}, {"XDG_CACHE_HOME", folder()}};
  const Words words = {"plan",       lenet(), "--set", "train.precision=bf16",
                       "--strategy", "best",  "-n",    "2"};

  const Ended refused = rondo(words, old_cpu);
  expect_refused(refused, 2, "train.precision: bf16 needs a CPU with AVX512_BF16 or AMX");
  EXPECT_THAT(refused.err, HasSubstr("or plan by --flops"));

  EXPECT_EQ(rondo(joined(words, {"--flops", "1e11"}), old_cpu).status, 0);
}

TEST_F(PlanTest, MeasuresKernelsOfTheTypeThatTrains) {
  const Environment environment = {{"XDG_CACHE_HOME", folder()}};
  const std::string facts = rondo({"info", "--format", "json"}).out;
  if (!nlohmann::json::parse(facts)["bf16"].get<bool>()) GTEST_SKIP() << "no bf16 on this CPU";

  const Ended ended = rondo({"plan", lenet(), "--set", "train.precision=bf16", "--strategy", "best",
                             "-n", "1", "--measurements", "1"},
                            environment);

  EXPECT_EQ(ended.status, 0) << ended.err;
  std::ifstream file(folder() / "rondo" / "kernel-times.json");
  const auto times = nlohmann::json::parse(file)["seconds"];
  EXPECT_FALSE(times.empty());
  for (const auto& [key, seconds] : times.items()) {
    // Parameters are fp32.
    EXPECT_THAT(
        key, AnyOf(HasSubstr(": bf16 "), ContainsRegex(": update of [0-9]+ parameters by sgd,")));
  }
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

TEST_F(PlanTest, AMemoryLimitOfZeroLiftsTheConfigured) {
  const Words words = {"--ranks", "2", "--strategy", "batch", "--set", "train.memory_limit=1000"};
  EXPECT_FALSE(plans(words)[0]["refused"].is_null());
  EXPECT_TRUE(plans(joined(words, {"--memory-limit", "0"}))[0]["refused"].is_null());
}

TEST_F(PlanTest, RanksAllStrategiesInATable) {
  const Ended ended = plan({"--ranks", "512"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::vector<std::string> text = lines(ended.out);
  EXPECT_THAT(text[0], HasSubstr("alexnet-2012, 2048 samples a step on 512 ranks"));
  EXPECT_THAT(text[2], testing::ContainsRegex("^integrated +32 +16 "));
  EXPECT_THAT(ended.out, testing::ContainsRegex("\nfc6 +filters 32 x batch 16 "));
}

TEST_F(PlanTest, SearchesASplitForEachLayer) {
  const auto array = plans({"--ranks", "512", "--strategy", "best", "--flops", "1e12"});

  ASSERT_THAT(array, SizeIs(10));  // P_r = 1, 2, 4, ..., 512
  const auto& best = array[0];
  EXPECT_EQ(best["strategy"], "best");
  EXPECT_EQ(best["pr"].get<int>() * best["pc"].get<int>(), 512);
  for (const auto& other : array)
    EXPECT_LE(best["overlapped_seconds"], other["overlapped_seconds"]);
  EXPECT_THAT(best["layers"], SizeIs(8));
  EXPECT_EQ(best["layers"][0]["split"], "sample");
  EXPECT_EQ(best["layers"][5]["name"], "fc6");
  EXPECT_THAT(best["layers"][5]["split"].get<std::string>(), HasSubstr("filter="));
  EXPECT_TRUE(best["refused"].is_null());
}

// 0 would look like the fastest and smallest of all.
TEST_F(PlanTest, GivesARefusedGridNoSecondsAndNoBytes) {
  const auto array =
      plans({"--ranks", "8", "--strategy", "best", "--flops", "1e12", "--memory-limit", "1MiB"});

  ASSERT_FALSE(array.empty());
  for (const auto& grid : array) {
    EXPECT_FALSE(grid["refused"].is_null());
    for (const char* name :
         {"communication_seconds", "compute_seconds", "overlapped_seconds", "bytes_per_rank"}) {
      EXPECT_TRUE(grid[name].is_null()) << name << ": " << grid[name];
    }
  }
}

TEST_F(PlanTest, WritesTheSectionThatTrainsSo) {
  const Ended ended = plan({"--ranks", "8", "--strategy", "best", "--flops", "1e14"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("[grid]\nsample = "));
  EXPECT_THAT(ended.out, HasSubstr("\"conv1\" = \"sample\"\n"));
}

TEST_F(PlanTest, MeasuresAndKeepsTimesWithoutAFlopRate) {
  const Words words = {"plan", lenet(), "--ranks", "2", "--strategy", "best", "--format", "json"};
  const Environment environment = {{"XDG_CACHE_HOME", folder()}};

  const Ended first = rondo(words, environment);
  const Ended second = rondo(words, environment);

  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_GT(nlohmann::json::parse(first.out)[0]["compute_seconds"], 0.0);
  EXPECT_TRUE(std::filesystem::exists(folder() / "rondo" / "kernel-times.json"));
  EXPECT_EQ(second.out, first.out);  // nothing is measured again
}

TEST_F(PlanTest, AnswersWhereItCannotKeepItsTimes) {
  // A folder in the place of the file.
  const std::filesystem::path file = folder() / "rondo" / "kernel-times.json";
  std::filesystem::create_directories(file);

  const Ended ended = rondo({"plan", lenet(), "--scaling", "1:1", "--format", "csv"},
                            {{"XDG_CACHE_HOME", folder()}});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(lines(ended.out), SizeIs(2));
  EXPECT_THAT(
      lines(ended.err),
      testing::ElementsAre(
          "rondo: the measured times are not kept, and will be measured again: " + file.string() +
          ": cannot be written: Is a directory; set XDG_CACHE_HOME to a folder "
          "that can be written"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder() / "rondo"), {}), 1);
}

TEST_F(PlanTest, PredictsScaling) {
  const Ended ended = plan({"--scaling", "1:8", "--flops", "1e12", "--format", "csv"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::vector<std::string> text = lines(ended.out);
  ASSERT_THAT(text, SizeIs(5));
  EXPECT_EQ(text[0],
            "ranks,global_batch,step_seconds,compute_seconds,exposed_seconds,images_per_second,"
            "speedup,efficiency");
  EXPECT_THAT(text[1], testing::StartsWith("1,2048,"));
  EXPECT_THAT(text[4], testing::StartsWith("8,16384,"));
}

TEST_F(PlanTest, PredictsEveryScheme) {
  for (const std::string scheme :
       {"synchronous", "sharded", "lazy", "k_step", "hierarchical", "cyclic"}) {
    const Words words = {"--scaling",           "4:4", "--scheme", scheme, "--flops", "1e12",
                         "--fixed-global-batch"};
    const auto points = plans(scheme == "lazy" ? joined(words, {"--tau", "4"}) : words);

    ASSERT_THAT(points, SizeIs(1)) << scheme;
    EXPECT_EQ(points[0]["global_batch"], 2048);
    EXPECT_GT(points[0]["images_per_second"], 0.0);
  }
}

// The four ranks of a node share its port; half of it takes them longer.
TEST_F(PlanTest, AsksTheNodesPortForItsBandwidth) {
  const Words words = {"--scaling", "8:8", "--flops", "1e12", "--ranks-per-node", "4"};
  const auto step_seconds = [&](const Words& more) {
    return plans(joined(words, more))[0]["step_seconds"].get<double>();
  };
  const double unlimited = step_seconds({});
  const double narrow = step_seconds({"--port-bandwidth", "2e8"});

  EXPECT_LT(unlimited, narrow);
  EXPECT_LT(narrow, step_seconds({"--port-bandwidth", "1e8"}));
}

TEST_F(PlanTest, PeriodPoliciesNeedTheMeanRound) {
  const Words words = {
      "--scaling", "4:4",   "--scheme",         "k_step", "--flops",
      "1e12",      "--set", "update.period=16", "--set",  "update.period_policy=adaptive"};

  EXPECT_THAT(plan(words).err, HasSubstr("update.period_policy = \"adaptive\" needs the mean "
                                         "steps of a round: --tau, or --metrics"));
  EXPECT_GT(plans(joined(words, {"--tau", "8"}))[0]["images_per_second"], 0.0);
}

TEST_F(PlanTest, AMissingLogIsMissingData) {
  const Ended ended = plan({"--scaling", "4:4", "--scheme", "lazy", "--flops", "1e12", "--metrics",
                            "/no/such/metrics.jsonl"});
  expect_refused(ended, 3,
                 "/no/such/metrics.jsonl: cannot be read; name the metrics.jsonl of a run");
}

TEST_F(PlanTest, TakesLinksFromTuning) {
  const std::filesystem::path file = folder() / "tune.json";
  write("tune.json", R"({"levels": [
    {"level": "node", "alpha_seconds": 1, "beta_seconds_per_byte": 0.25}]})");
  const auto grid = plans({"--ranks", "2", "--strategy", "batch", "--tuning", file})[0];
  const auto other =
      plans({"--ranks", "2", "--strategy", "batch", "--tuning", file, "--alpha", "2"})[0];
  EXPECT_DOUBLE_EQ(grid["communication_seconds"], 2 * (8 + 62'367'776.0 / 2));
  EXPECT_DOUBLE_EQ(other["communication_seconds"], 2 * (16 + 62'367'776.0 / 2));
}

// Arguments that make no sense together, and what is said of them.
const std::vector<Mistake> mistakes = {
    {{}, "--ranks is required"},
    {{"--scaling", "4"}, "write one like 1:4096"},
    {{"--scaling", "4:2"}, "not behind their end"},
    {{"--scaling", "4:2", "--flops", "1"}, "not behind their end"},
    {{"--scaling", "0:4"}, "begin with at least one"},
    {{"--scaling", "4096:8192", "--flops", "1", "--fixed-global-batch"}, "no sample for each"},
    {{"--scaling", "1:2", "--scheme", "lazy"}, "needs the mean"},
    // It took minutes.
    {{"--ranks", "1000003"}, "--ranks: Value 1000003 not in range"},
    {{"--ranks", "2", "--format", "csv"}, "csv is for --scaling"},
    {{"--ranks", "2", "--tuning", "/no/such"}, "cannot be read"},
    {{"--ranks", "2", "--tuning", "/tmp"}, "/tmp: is a folder"},
    // As `rondo train` does.
    {{"--scaling", "8:8", "--flops", "1e12", "--scheme", "hierarchical", "--set",
      "update.local_period=32", "--set", "update.group=8"},
     "is not a multiple of the period below"},
    {{"--ranks", "8", "--set", "data.name=fashion-mnist"}, "does not fit the images"},
    {{"--ranks", "6", "--ranks-per-node", "4"}, "multiple of the ranks per node"},
    {{"--ranks", "2", "--scheme", "k_step"}, "--scaling"},
    {{"--ranks", "2", "--tau", "2"}, "--scaling"},
    {{"--ranks", "2", "--metrics", "f"}, "--scaling"},
    {{"--ranks", "2", "--batch-per-rank", "2"}, "--scaling"},
    {{"--ranks", "2", "--fixed-global-batch"}, "--scaling"},
    {{"--scaling", "1:2", "--flops", "1", "--tau", "2"},
     "--tau and --metrics have no effect with update.scheme = "
     "\"synchronous\""},
    {{"--scaling", "1:2", "--flops", "1", "--metrics", "f"}, "have no effect"},
    {{"--scaling", "1:2", "--memory-limit", "1K"}, "--memory"},
    {{"--scaling", "1:2", "--measurements", "1"}, "--measure"},
    {{"--scaling", "1:2", "--ranks", "2"}, "--ranks"},
    {{"--scaling", "1:2", "--strategy", "best"}, "--strategy"}};

TEST_F(PlanTest, RefusesWhatMakesNoSense) {
  for (const Mistake& mistake : mistakes) expect_refused(plan(mistake.arguments), 2, mistake.said);
  write("no.json", "{}");
  expect_refused(plan({"--ranks", "2", "--tuning", folder() / "no.json"}), 2, "has no levels");
}

TEST_F(PlanTest, TakesAFileThatStandsBehindASetting) {
  const Ended ended = rondo({"plan", "--set", "train.global_batch=64", lenet(), "-n", "2"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("64 samples a step"));
}

}  // namespace
}  // namespace rondo::test::plan_test
