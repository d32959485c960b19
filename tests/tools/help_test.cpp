// The defaults that --help shows are those of the code.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

#include "bench/bench_options.hpp"
#include "command.hpp"
#include "plan/plan_request.hpp"

namespace rondo::tools::help_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// The program's whole command line.
class HelpTest : public testing::Test {
 protected:
  HelpTest() {
    add_run(app_, none_, status_);
    add_train(app_, status_);
    add_compare(app_, status_);
    add_plan(app_, status_);
    add_bench(app_, none_, status_);
    add_info(app_, status_);
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

  std::vector<std::string> none_ = {};
  int status_ = 0;
};

TEST_F(HelpTest, ShowsTheDefaultsThatAreInTheCode) {
  const BenchOptions bench;
  const PlanRequest plan;
  const std::vector<std::string> allreduce = {"bench", "allreduce"};

  EXPECT_EQ(default_of(allreduce, "--type"), bench.type);
  EXPECT_EQ(default_of(allreduce, "--op"), bench.reduction);
  EXPECT_EQ(default_of(allreduce, "--memory"), bench.memory);
  EXPECT_EQ(default_of(allreduce, "--buffers"), bench.buffers);
  EXPECT_EQ(default_of(allreduce, "--wait"), bench.wait);
  EXPECT_EQ(default_of(allreduce, "--format"), bench.format);
  EXPECT_EQ(default_of(allreduce, "--fabric"), transport::FabricOptions{}.name);
  EXPECT_EQ(default_of({"bench", "segmented"}, "--groups"), std::to_string(bench.groups));
  EXPECT_EQ(default_of({"plan"}, "--strategy"), plan.strategy);
  EXPECT_EQ(default_of({"plan"}, "--measurements"), std::to_string(plan.measurements));
  EXPECT_EQ(std::stod(default_of({"plan"}, "--alpha")), plan.plan.fabric.alpha_seconds);
  EXPECT_EQ(std::stod(default_of({"plan"}, "--bandwidth")), plan.plan.fabric.bandwidth);
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
