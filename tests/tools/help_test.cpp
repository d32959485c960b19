// The defaults that --help shows are those of the code.

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/plan.hpp>
#include <rondo/transport/world.hpp>

#include "bench/measure.hpp"
#include "bench/operation.hpp"
#include "command.hpp"

namespace rondo::tools::help_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// The program's whole command line.
class HelpTest : public testing::Test {
 protected:
  HelpTest() {
    Command root(app_, line_, status_);
    for (const auto add : {add_run, add_train, add_compare, add_plan, add_bench, add_info,
                           add_report, add_find_rate}) {
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
    EXPECT_THAT(option.get_description(), testing::Not(HasSubstr("default")))
        << app.get_name() << " " << option.get_name();
  });
}

}  // namespace
}  // namespace rondo::tools::help_test
