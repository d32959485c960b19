// The [grid] section of a plan splits layers as the plan does.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/plan_best.hpp>

#include "config/grid_choice.hpp"

namespace rondo::train::plan_section_test {
namespace {

constexpr std::int64_t batch = 8;

std::vector<BestPlan> plans_of(const Model& model, int ranks) {
  const LinkCost link{.alpha_seconds = 1e-6, .bandwidth = 1e9};
  const PlanOptions options{.ranks = ranks, .batch = batch, .fabric = link, .node = link};
  return best_plans(model, options, FlopRate(1e11));
}

TEST(PlanSectionTest, KeysSplitLayersAsThePlanDoes) {
  for (const std::string name : {"resnet20", "resnet18", "alexnet"}) {
    const Model model = make_model(name);
    for (const int ranks : {1, 6, 8}) {
      for (const BestPlan& plan : plans_of(model, ranks)) {
        const GridChoice choice = choose_grid(model, grid_keys(plan), ranks, batch);

        EXPECT_EQ(choice.grid, plan.grid);
        EXPECT_EQ(choice.splits, layer_splits(model, plan)) << name << "\n" << grid_section(plan);
      }
    }
  }
}

TEST(PlanSectionTest, WritesEveryLayer) {
  const BestPlan plan = {.grid = {.pr = 4, .pc = 2},
                         .layers = {{.name = "a", .split = {.kind = SplitKind::group}},
                                    {.name = "b", .split = {SplitKind::space, 2, 2, {}}}}};

  EXPECT_EQ(grid_section(plan),
            "[grid]\nsample = 2\nfilter = 4\n\n[grid.layers]\n\"a\" = \"group\"\n"
            "\"b\" = \"height=2 width=2\"\n");
  EXPECT_EQ(split_text({.kind = SplitKind::sample}), "sample");
}

}  // namespace
}  // namespace rondo::train::plan_section_test
