// The memory of a plan against what the executor of a rank makes room for.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/plan_best.hpp>

#include "executor/graph.hpp"
#include "executor/lowering.hpp"

namespace rondo::train::plan_memory_test {
namespace {

// Words of every value as the first group's rank at `position` holds it.
std::vector<std::int64_t> sizes_on(const Lowering& lowering, int position) {
  std::vector<std::int64_t> sizes;
  for (const Partition& value : lowering.values) sizes.push_back(value.box_of(position).size());
  return sizes;
}

// All values and gradients, of the rank that holds most.
std::int64_t activation_words(const Model& model, const BestPlan& plan, std::int64_t batch) {
  const std::int64_t images = (batch + plan.grid.pc - 1) / plan.grid.pc;
  const Lowering lowering = lower(model, layer_splits(model, plan), plan.grid.pr, images);
  std::int64_t most = 0;
  for (int position = 0; position < plan.grid.pr; ++position) {
    const std::vector<std::int64_t> sizes = sizes_on(lowering, position);
    const std::vector<std::int64_t> buffers = plan_backward(lowering.graph, sizes).elements;
    most = std::max(most, std::reduce(sizes.begin(), sizes.end()) +
                              std::reduce(buffers.begin(), buffers.end()));
  }
  return most;
}

// Parameters, their gradients and momenta.
std::int64_t parameter_words(const Model& model, const BestPlan& plan) {
  std::int64_t words = 0;
  for (const ParameterBlock& group : layout_of(model).blocks) {
    const auto layer = std::ranges::find(plan.layers, group.name, &BestLayer::name);
    const bool is_cut = layer != plan.layers.end() && layer->split.kind == SplitKind::channel;
    const std::int64_t parts = is_cut ? plan.grid.pr : 1;
    words += 3 * ((static_cast<std::int64_t>(group.size) + parts - 1) / parts);
  }
  return words;
}

void expect_room(const Model& model, const PlanOptions& options, double flops) {
  for (const BestPlan& plan : best_plans(model, options, FlopRate(flops))) {
    const auto planned = static_cast<std::int64_t>(plan.bytes_per_rank / 4);
    EXPECT_GE(planned - parameter_words(model, plan), activation_words(model, plan, options.batch))
        << model.name << " on " << plan.grid.pr << " x " << plan.grid.pc;
  }
}

TEST(PlanMemoryTest, APlanHasRoomForAllValuesAndGradients) {
  for (const std::string name : {"lenet5", "resnet20", "alexnet", "resnet50"}) {
    for (const int ranks : {2, 8, 12}) {
      expect_room(make_model(name), {.ranks = ranks, .batch = 16}, 1e13);
    }
  }
}

// What the last layer reads of a group of ranks is more than any layer writes on one.
TEST(PlanMemoryTest, APlanHasRoomForGradientsOfRedistributedValues) {
  const Model model = {.name = "wide",
                       .input = {1, 8, 8, 3},
                       .classes = 128,
                       .layers = {{"conv", ConvolutionLayer{.filters = 16}, {0}},
                                  {"fc", FullyConnectedLayer{.outputs = 128}, {1}}}};

  expect_room(model, {.ranks = 64, .batch = 64}, 1e9);
}

}  // namespace
}  // namespace rondo::train::plan_memory_test
