// `rondo bench model` as a program.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/program.hpp"
#include "tools/runs.hpp"

namespace rondo::test::bench_model_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

using Json = nlohmann::json;

Ended bench_model(const Words& more) {
  return rondo(joined({"bench", "model", "lenet5", "--batch", "2", "--threads", "1"}, more));
}

TEST(BenchModelTest, TimesAStepOfAllRanks) {
  const Ended ended = bench_model({"-n", "2", "--oversubscribe", "--format", "json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto step = Json::parse(ended.out);

  EXPECT_EQ(step["model"], "lenet5");
  EXPECT_EQ(step["batch"], 2);
  EXPECT_EQ(step["precision"], "fp32");
  EXPECT_EQ(step["ranks"], 2);
  EXPECT_EQ(step["threads"], 1);
  EXPECT_GT(step["microseconds"], 0.0);
  EXPECT_GT(step["images_per_second"], 0.0);
  EXPECT_GT(step["all_images_per_second"], step["images_per_second"]);
  EXPECT_FALSE(step.contains("kernels"));
}

TEST(BenchModelTest, TimesEachKernel) {
  const Ended ended = bench_model({"--primitives", "--format", "json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto sum = Json::parse(ended.out);
  double microseconds = 0.0;
  std::vector<std::string> layers;
  for (const auto& kernel : sum["kernels"]) {
    microseconds += kernel["microseconds"].get<double>();
    layers.push_back(kernel["layer"]);
    EXPECT_NE(kernel["implementation"], "");
  }

  EXPECT_NEAR(sum["microseconds"].get<double>(), microseconds, 1e-6 * microseconds);
  EXPECT_THAT(layers, AllOf(Contains("conv1"), Contains("fc3")));
}

TEST(BenchModelTest, SaysInALineWhatItHasMeasured) {
  EXPECT_THAT(bench_model({}).out,
              AllOf(StartsWith("training step of lenet5 in fp32, batch 2 per rank, 1 rank(s) x 1 "
                               "thread(s): "),
                    HasSubstr(" images/s\n")));
}

TEST(BenchModelTest, ComputesInTheTypeThatIsAskedFor) {
  const auto facts = Json::parse(rondo({"info", "--format", "json"}).out);
  const Ended ended = bench_model({"--precision", "bf16", "--format", "json"});
  if (facts["bf16"].get<bool>()) {
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(Json::parse(ended.out)["precision"], "bf16");
  } else {
    expect_refused(ended, 2, "--precision: bf16 needs a CPU with");
  }
}

}  // namespace
}  // namespace rondo::test::bench_model_test
