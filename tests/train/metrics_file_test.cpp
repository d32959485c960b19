// metrics.jsonl: a whole line per event, at once, or an error that says why not; and with the names
// that docs/metrics.md gives.

#include "trainer/run_log.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "support/sources.hpp"

namespace rondo::train::metrics_file_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class MetricsFileTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "metrics.jsonl"; }
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> result;
    std::ifstream stream(file());
    for (std::string line; std::getline(stream, line);)
      result.push_back(nlohmann::json::parse(line));
    return result;
  }

 private:
  rondo::test::ScratchFolder folder_;
};

TEST_F(MetricsFileTest, EachEventIsALineThatCanBeReadAtOnce) {
  MetricsFile metrics(file());

  metrics.write(StartEvent{.config = "[data]\nname = \"x\"\n", .ranks = 2});
  ASSERT_EQ(lines().size(), 1U);
  metrics.write(StepEvent{.epoch = 1, .step = 50});
  metrics.write(EpochMetrics{.epoch = 1, .accuracy = 12.5});
  metrics.write(RunSummary{.reason = "completed"});

  const auto written = lines();
  ASSERT_EQ(written.size(), 4U);
  EXPECT_EQ(written[0].at("event"), "start");
  EXPECT_EQ(written[0].at("config"), "[data]\nname = \"x\"\n");
  EXPECT_EQ(written[1].at("step"), 50);
  EXPECT_EQ(written[2].at("accuracy"), 12.5);
  EXPECT_EQ(written[3].at("reason"), "completed");
}

using Fields = std::map<std::string, std::set<std::string>>;  // by event

// The rows "| field | ..." under the headings "## EVENT" of the page.
Fields documented_fields() {
  Fields fields;
  std::string event;
  std::ifstream page(rondo::test::sources() / "docs" / "metrics.md");
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) event = line.substr(3);
    if (!line.starts_with("| ") || line.starts_with("| field |")) continue;
    fields[event].insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return fields;
}

TEST_F(MetricsFileTest, ThePageNamesEveryEventAndField) {
  MetricsFile metrics(file());
  metrics.write(StartEvent{});
  metrics.write(ResumeEvent{});
  metrics.write(StepEvent{});
  metrics.write(EpochMetrics{});
  metrics.write(sync::LazyWindow{});
  metrics.write(RoundEvent{});
  metrics.write(sync::Push{});
  metrics.write(RunSummary{});

  Fields written;
  for (const nlohmann::json& line : lines()) {
    for (const auto& item : line.items())
      if (item.key() != "event") written[line.at("event")].insert(item.key());
  }

  EXPECT_THAT(documented_fields(), testing::ContainerEq(written));
}

TEST_F(MetricsFileTest, ANumberThatJsonCannotHoldIsNull) {
  MetricsFile metrics(file());

  metrics.write(StepEvent{.loss = std::numeric_limits<double>::quiet_NaN()});

  EXPECT_TRUE(lines().at(0).at("loss").is_null());
}

TEST_F(MetricsFileTest, BeginsTheFileAnew) {
  std::ofstream(file()) << "what an earlier run left\n";

  MetricsFile(file()).write(RunSummary{});

  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(MetricsFileTest, GoesOnWhereItWasCut) {
  MetricsFile metrics(file());
  metrics.write(StepEvent{.step = 1});
  const std::uint64_t end = metrics.bytes();
  metrics.write(StepEvent{.step = 2});
  metrics.write(StepEvent{.step = 3});

  MetricsFile again(file(), MetricsFile::Begin::at_the_end);
  again.cut(end);
  again.write(StepEvent{.step = 4});

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0].at("step"), 1);
  EXPECT_EQ(lines()[1].at("step"), 4);
}

TEST_F(MetricsFileTest, RefusesAFolderThatDoesNotExist) {
  EXPECT_THAT([&] { MetricsFile(file() / "no" / "metrics.jsonl"); },
              ThrowsMessage<ConfigError>(HasSubstr("metrics.jsonl: cannot be written: ")));
}

TEST_F(MetricsFileTest, AFullDiskIsAnError) {
  MetricsFile metrics("/dev/full");

  EXPECT_THAT([&] { metrics.write(RunSummary{}); },
              ThrowsMessage<DataError>("/dev/full: cannot be written: No space left on device"));
}

}  // namespace
}  // namespace rondo::train::metrics_file_test
