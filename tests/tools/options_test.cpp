// Options: the grammar of sizes, and the defaults that --help shows.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/plan.hpp>
#include <rondo/transport/world.hpp>

#include "bench/measure.hpp"
#include "bench/operation.hpp"
#include "command.hpp"
#include "failure.hpp"
#include "options.hpp"

namespace rondo::tools::options_test {
namespace {

using testing::ElementsAre;

// The grammar of sizes.

TEST(BytesTest, AreReadInPowersOf1024) {
  const std::vector<std::pair<const char*, std::uint64_t>> cases = {
      {"0", 0},
      {"7", 7},
      {"7B", 7},
      {"64K", 65536},
      {"64KB", 65536},
      {"64KiB", 65536},
      {"64ki", 65536},
      {"1m", 1 << 20},
      {"16GiB", std::uint64_t{16} << 30U},
      {"2T", std::uint64_t{2} << 40U},
      {"1e", std::uint64_t{1} << 60U}};
  for (const auto& [text, bytes] : cases) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(ByteSizesTest, GoUpByFactorsOfFourToTheLastThatFits) {
  EXPECT_THAT(byte_sizes("4:64"), ElementsAre(4U, 16U, 64U));
  EXPECT_THAT(byte_sizes("4:60"), ElementsAre(4U, 16U));
  EXPECT_THAT(byte_sizes("16K:1M"), ElementsAre(16384U, 65536U, 262144U, 1048576U));
  EXPECT_EQ(byte_sizes("4:64M").back(), 64U * 1024U * 1024U);
  EXPECT_THAT(byte_sizes("1K"), ElementsAre(1024U));
  EXPECT_THAT(byte_sizes("1g"), ElementsAre(1073741824U));
}

TEST(ByteSizesTest, TakesOnlyWholeElements) {
  EXPECT_THAT(byte_sizes("5", 1), ElementsAre(5U));
  EXPECT_THROW(static_cast<void>(byte_sizes("4:64", 8)), UsageError);
}

TEST(ByteSizesTest, RefuseTextsThatAreNone) {
  for (const char* text : {"", "x", "4:", ":4", "0", "5", "8:4", "4T", "4MX", "4iB", "K", "1.5K",
                           "-4", "99999999999G", "99999999999999999999", "17E", "4:8:16"}) {
    EXPECT_THROW(static_cast<void>(byte_sizes(text)), UsageError) << text;
  }
}

// The defaults that --help shows are those of the code.

// The program's whole command line.
class HelpTest : public testing::Test {
 protected:
  HelpTest() {
    Command root(app_, line_, status_);
    for (const auto add : {add_run, add_init, add_config, add_train, add_find_rate, add_compare,
                           add_report, add_eval, add_predict, add_export, add_inspect, add_plan,
                           add_bench, add_info, add_doctor, add_generate}) {
      add(root);
    }
  }

  void for_each_option(const std::function<void(const CLI::App&, CLI::Option&)>& visit) {
    visit_options(app_, visit);
  }
  [[nodiscard]] std::string default_of(const std::vector<std::string>& commands,
                                       const std::string& option) {
    CLI::App* app = &app_;
    for (const std::string& command : commands) app = app->get_subcommand(command);
    return app->get_option(option)->get_default_str();
  }

  CLI::App app_{"rondo"};

 private:
  static void visit_options(CLI::App& app,
                            const std::function<void(const CLI::App&, CLI::Option&)>& visit) {
    for (CLI::Option* option : app.get_options()) visit(app, *option);
    for (CLI::App* command : app.get_subcommands({})) visit_options(*command, visit);
  }

  CommandLine line_ = {};
  int status_ = 0;
};

TEST_F(HelpTest, ShowsTheDefaultsThatAreInTheCode) {
  const Bench bench;
  const train::PlanOptions plan;
  const std::vector<std::string> allreduce = {"bench", "allreduce"};

  EXPECT_EQ(default_of(allreduce, "--type"), name_of(element_types, bench.type));
  EXPECT_EQ(default_of(allreduce, "--op"), name_of(reductions, bench.reduction));
  EXPECT_EQ(default_of(allreduce, "--memory"), "both");
  EXPECT_EQ(default_of(allreduce, "--buffers"), "rewritten");
  EXPECT_EQ(default_of(allreduce, "--wait"), "auto");
  EXPECT_EQ(default_of(allreduce, "--format"), "table");
  EXPECT_EQ(default_of(allreduce, "--fabric"), transport::FabricOptions{}.name);
  EXPECT_EQ(default_of({"bench", "segmented"}, "--groups"), std::to_string(bench.groups));
  EXPECT_EQ(default_of({"plan"}, "--strategy"), "all");
  EXPECT_EQ(std::stod(default_of({"plan"}, "--alpha")), plan.fabric.alpha_seconds);
  EXPECT_EQ(std::stod(default_of({"plan"}, "--bandwidth")), plan.fabric.bandwidth);
}

TEST_F(HelpTest, ShowsNoDefaultThatTheOptionWouldRefuse) {
  int shown = 0;
  for_each_option([&](const CLI::App& app, CLI::Option& option) {
    std::string value = option.get_default_str();
    if (value.empty()) return;
    ++shown;
    option.add_result(value);
    EXPECT_NO_THROW((void)option.reduced_results()) << app.get_name() << " " << option.get_name();
    option.clear();
  });

  EXPECT_GT(shown, 50);
}

// A value that is typed into the text stays when the code changes.
TEST_F(HelpTest, TypesNoNumberIntoTheTextOfAnOptionThatHasADefault) {
  for_each_option([&](const CLI::App& app, CLI::Option& option) {
    if (option.get_default_str().empty()) return;
    EXPECT_THAT(option.get_description(), testing::Not(testing::HasSubstr("default")))
        << app.get_name() << " " << option.get_name();
  });
}

// C reads them as octal numbers.
TEST(IntegerTest, IsDecimalAlsoBehindZeros) {
  CLI::App app("rondo");
  const CommandLine line;
  int status = 0;
  Command root(app, line, status);
  int ranks = 0;
  std::optional<int> maybe;
  std::vector<std::int64_t> seeds;
  root.option("-n", ranks, "").range(1, 10);
  root.option("--maybe", maybe, "");
  root.option("--seeds", seeds, "").not_negative().separated_by(',');

  app.parse("-n 010 --maybe=-08 --seeds 010,0,00,1");

  EXPECT_EQ(ranks, 10);
  EXPECT_EQ(maybe, -8);
  EXPECT_THAT(seeds, ElementsAre(10, 0, 0, 1));
}

}  // namespace
}  // namespace rondo::tools::options_test
