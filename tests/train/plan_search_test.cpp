// The search for the best splits against all splits there are, on networks small enough for that.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/plan_best.hpp>
#include <rondo/train/redistribution.hpp>

#include "config/grid_choice.hpp"
#include "executor/graph.hpp"
#include "grid/layout.hpp"
#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"
#include "plan/layout_search.hpp"
#include "train/support/planned_job.hpp"

namespace rondo::train::plan_search_test {
namespace {

using test::chain;
using test::convolution;
using test::job;
using testing::ElementsAre;

constexpr double rounding = 1e-9;  // relative, of sums in another order

// A block whose shortcut is a convolution of its own, and one whose shortcut is its input.
Model residual() {
  return {.name = "residual",
          .input = {1, 8, 8, 3},
          .classes = 64,
          .layers = {{"conv", convolution(32), {0}},
                     {"down", convolution(64, 1, 2), {1}},
                     {"conv1", convolution(64, 3, 2), {1}},
                     {"conv2", convolution(64), {3}},
                     {"bn2", BatchNormLayer{.residual = true}, {4, 2}},
                     {"conv3", convolution(64), {5}},
                     {"bn3", BatchNormLayer{.residual = true}, {6, 5}},
                     {"pool", GlobalAveragePoolingLayer{}, {7}},
                     {"fc", FullyConnectedLayer{.outputs = 64}, {8}}}};
}

// Tries all options of all layers, one after the other, with the layout of every value at hand.
class BruteForce {
 public:
  BruteForce(const GridJob& job, const ComputeCosts& costs)
      : job_(job),
        layouts_(possible_layouts(job)),
        layout_(job.model.layers.size() + 1),
        copies_(layout_.size()) {
    for (std::size_t i = 0; i < job.model.layers.size(); ++i) {
      options_.push_back(options_of(job, layer_of(job, i), layouts_, costs));
    }
    chosen_.resize(options_.size());
  }

  // Infinity if nothing takes so few elements. 0: any number.
  // With `buffers`, each as large as the largest gradient, on top.
  double least_seconds(std::uint64_t most_elements = 0, std::uint64_t buffers = 0) {
    most_elements_ = most_elements;
    buffers_ = buffers;
    go_on(0, {});
    return least_;
  }

  [[nodiscard]] const std::vector<ValueLayout>& layouts() const { return layouts_; }
  [[nodiscard]] const std::vector<std::vector<LayerOption>>& options() const { return options_; }

 private:
  struct Cost {
    double seconds = 0.0;  // but for reductions: no step is shorter
    std::uint64_t elements = 0;
    std::uint64_t gradient = 0;
  };
  struct Chosen {
    const LayerOption* option = nullptr;
    double moved = 0.0;
  };

  void go_on(std::size_t layer, const Cost& cost) {
    const std::uint64_t elements = cost.elements + buffers_ * cost.gradient;
    if (cost.seconds >= least_ || (most_elements_ > 0 && elements > most_elements_)) return;
    if (layer == options_.size()) {
      least_ =
          std::min(least_, step_seconds());  // fully connected layers are last: logits are whole
      return;
    }
    const std::vector<ValueId>& inputs = job_.model.layers[layer].inputs;
    for (const LayerOption& option : options_[layer]) {
      if (!follows(layer, option, inputs[0])) continue;
      const std::vector<std::set<int>> before = copies_;
      Cost after{cost.seconds + option.compute.total() + option.exchange.seconds() -
                     option.exchange.halo_dy.seconds,
                 cost.elements + option.elements, std::max(cost.gradient, option.gradient)};
      chosen_[layer] = {&option, 0.0};
      for (const ValueId value : inputs) {
        const Cost moved = move(value, option.x);
        chosen_[layer].moved += moved.seconds;
        after.elements += moved.elements;
      }
      after.seconds += chosen_[layer].moved;
      layout_[layer + 1] = option.y;
      go_on(layer + 1, after);
      copies_ = before;
    }
  }

  // Forward, backward, and the network beside it, one layer after the other.
  [[nodiscard]] double step_seconds() const {
    double clock = 0.0;
    for (const Chosen& layer : chosen_) {
      clock +=
          layer.moved / 2 + layer.option->exchange.forward.seconds + layer.option->compute.forward;
    }
    double network = 0.0;
    for (std::size_t i = chosen_.size(); i-- > 0;) {
      const LayerOption& option = *chosen_[i].option;
      clock += option.exchange.dy.seconds;
      const double halo = clock + option.exchange.halo_dy.seconds;
      clock += option.compute.backward_weights;
      if (option.reduction > 0.0) network = std::max(network, clock) + option.reduction;
      clock = std::max(clock, halo) + option.compute.backward_data + option.exchange.dx.seconds +
              chosen_[i].moved / 2;
    }
    return std::max(clock, network);
  }

  [[nodiscard]] const ValueLayout& layout(int number) const {
    return layouts_[static_cast<std::size_t>(number)];
  }

  [[nodiscard]] bool follows(std::size_t layer, const LayerOption& option, ValueId x) const {
    const bool in_order = layout(option.x).turn == 1;
    if (x == 0) return in_order;
    if (!layer_of(job_, layer).has_split()) {
      const ValueLayout wanted = layout_read_by(job_.model.layers[layer], {}, layout(layout_[x]));
      return layout(option.x) == wanted;
    }
    const bool alike = cut_alike(layout(option.x), layout(layout_[x]));
    return alike ? option.x == layout_[x] : in_order;
  }

  // Once for all that want it so. The model's input is made, not moved.
  Cost move(ValueId value, int to) {
    const ValueLayout& b = layout(to);
    const tensor::Shape& extents = job_.shapes[value];
    const auto elements = static_cast<std::uint64_t>(largest_box(b, extents, job_.grid).size());
    if (value == 0) return {0.0, elements};
    if (to == layout_[value] || !copies_[value].insert(to).second) return {};
    const ValueLayout& a = layout(layout_[value]);
    const auto seconds = [&](const ValueLayout& from, const ValueLayout& onto) {
      return messages_cost(redistribution_of(from, onto, extents, job_.grid), job_.replica(),
                           job_.options)
          .seconds;
    };
    return {seconds(a, b) + seconds(b, a), elements};
  }

  const GridJob& job_;
  std::vector<ValueLayout> layouts_;
  std::vector<std::vector<LayerOption>> options_;
  std::vector<Chosen> chosen_;         // by layer
  std::vector<int> layout_;            // by value, as it was written
  std::vector<std::set<int>> copies_;  // and as it was read
  std::uint64_t most_elements_ = 0;
  std::uint64_t buffers_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
};

void expect_best_of_all(const Model& model, const PlanOptions& options, double flops) {
  const FlopRate costs(flops);
  const std::vector<BestPlan> plans = best_plans(model, options, costs);
  ASSERT_FALSE(plans.empty());
  for (const BestPlan& plan : plans) {
    const GridJob job{.model = model,
                      .options = options,
                      .grid = plan.grid,
                      .shapes = shapes_of(model, options.batch)};
    const double least = BruteForce(job, costs).least_seconds();
    ASSERT_TRUE(std::isfinite(least));
    EXPECT_NEAR(plan.overlapped_seconds, least, rounding * least)
        << model.name << ", " << plan.grid.pr << " x " << plan.grid.pc;
  }
}

// Less and less memory, until nothing fits. Returns how many limits something did fit.
int expect_best_within_memory(const Model& model, const PlanOptions& options, double flops) {
  const FlopRate costs(flops);
  const GridJob job{.model = model,
                    .options = options,
                    .grid = {.pr = options.ranks, .pc = 1},
                    .shapes = shapes_of(model, options.batch)};
  const BruteForce space(job, costs);
  const RelayoutTable relayouts(job, space.layouts());
  const auto search = [&](std::uint64_t elements) {
    return search_layouts(job, space.layouts(), relayouts, space.options(), elements);
  };
  std::uint64_t elements = search(0)->elements;
  int fitting = 0;
  for (; elements > 0; elements = elements * 97 / 100) {
    const double least = BruteForce(job, costs).least_seconds(elements);
    const std::optional<FoundLayouts> found = search(elements);
    EXPECT_EQ(found.has_value(), std::isfinite(least)) << elements;
    if (!found) break;
    EXPECT_LE(found->elements, elements);
    EXPECT_NEAR(found->seconds, least, rounding * least) << elements;
    ++fitting;
  }
  return fitting;
}

// The same with the buffers for gradients. Returns how many limits something did fit.
int expect_best_plan_within_memory(const Model& model, PlanOptions options, double flops) {
  const FlopRate costs(flops);
  const ProcessGrid grid{.pr = options.ranks, .pc = 1};
  const auto search = [&] {
    const GridJob job{.model = model,
                      .options = options,
                      .grid = grid,
                      .shapes = shapes_of(model, options.batch)};
    return search_within_memory(job, possible_layouts(job), costs);
  };
  const std::uint64_t buffers = plan_backward(model).elements.size();
  std::uint64_t bytes = 4 * search()->elements;
  int fitting = 0;
  for (; bytes > 0; bytes = bytes * 95 / 100) {
    options.memory_limit = bytes;
    const GridJob job{.model = model,
                      .options = options,
                      .grid = grid,
                      .shapes = shapes_of(model, options.batch)};
    const double least = BruteForce(job, costs).least_seconds(bytes / 4, buffers);
    const std::optional<FoundLayouts> found = search();
    EXPECT_EQ(found.has_value(), std::isfinite(least)) << bytes;
    if (!found) break;
    EXPECT_LE(4 * found->elements, bytes);
    EXPECT_NEAR(found->seconds, least, rounding * least) << bytes;
    ++fitting;
  }
  return fitting;
}

TEST(PlanSearchTest, LeavesRoomForGradients) {
  EXPECT_GT(expect_best_plan_within_memory(chain(), job(4, 2, 1e-3), 1e12), 3);
  EXPECT_GT(expect_best_plan_within_memory(residual(), job(4, 2, 1e-3), 1e12), 3);
}

// The input and the convolution's output are of the same extents.
TEST(PlanSearchTest, NobodyBringsBackAGradientOfTheInput) {
  const Model model = {
      .name = "equal",
      .input = {1, 8, 8, 16},
      .classes = 16,
      .layers = {{"conv", convolution(16), {0}}, {"mean", GlobalAveragePoolingLayer{}, {1}}}};
  const PlanOptions options = job(4, 4);
  const GridJob on_replica{.model = model,
                           .options = options,
                           .grid = {.pr = 4, .pc = 1},
                           .shapes = shapes_of(model, 4)};
  const std::vector<ValueLayout> layouts = possible_layouts(on_replica);
  const RelayoutTable table(on_replica, layouts);

  const int count = static_cast<int>(layouts.size());
  double dearest = 0.0;
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      const double there = table.seconds(0, from, to);
      EXPECT_EQ(table.seconds(1, from, to), there + table.seconds(0, to, from));
      dearest = std::max(dearest, there);
    }
  }
  EXPECT_GT(dearest, 0.0);
}

// A mean of channels that lie apart is brought together behind the last layer.
TEST(PlanSearchTest, CountsTheWordsOfWholeLogits) {
  const Model model = {
      .name = "late",
      .input = {1, 2, 2, 64},
      .classes = 64,
      .layers = {{"conv", convolution(64), {0}}, {"mean", GlobalAveragePoolingLayer{}, {1}}}};
  const PlanOptions options = job(4, 4, 0.0);
  const GridJob on_replica{.model = model,
                           .options = options,
                           .grid = {.pr = 4, .pc = 1},
                           .shapes = shapes_of(model, 4)};
  const std::vector<ValueLayout> layouts = possible_layouts(on_replica);
  std::vector<std::vector<LayerOption>> all;
  for (std::size_t i = 0; i < 2; ++i) {
    all.push_back(options_of(on_replica, layer_of(on_replica, i), layouts, FlopRate(1e9)));
  }

  const auto found =
      search_layouts(on_replica, layouts, RelayoutTable(on_replica, layouts), all, 0);

  ASSERT_GT(found->closing, 0.0);
  const LayerOption& first = found->layers[0].option;
  const LayerOption& last = found->layers[1].option;
  const std::uint64_t input =
      held_elements(on_replica, layouts[static_cast<std::size_t>(first.x)], on_replica.shapes[0]);
  EXPECT_EQ(found->elements, input + first.elements + last.elements + 4 * 64);
}

TEST(PlanSearchTest, SplitsNoImagesThatAreOverpadded) {
  const auto is_split_in_space = [](std::int64_t padding) {
    const ConvolutionLayer layer{.filters = 32, .kernel = 3, .padding = padding};
    const Model model{.name = "padded",
                      .input = {1, 16, 16, 32},
                      .classes = 2,
                      .layers = {{"conv", layer, {0}}, {"fc", FullyConnectedLayer{2}, {1}}}};
    const PlanOptions options = job(2, 2);
    const GridJob search{.model = model,
                         .options = options,
                         .grid = {.pr = 2, .pc = 1},
                         .shapes = shapes_of(model, options.batch)};
    return std::ranges::any_of(
        options_of(search, layer_of(search, 0), possible_layouts(search), FlopRate(1e12)),
        [](const LayerOption& option) { return option.split.kind == SplitKind::space; });
  };

  EXPECT_TRUE(is_split_in_space(2));
  EXPECT_FALSE(is_split_in_space(3));
}

TEST(PlanSearchTest, ConsidersTilesOfRowsInFewParts) {
  const Model model = chain();
  const auto tiles_of = [&](int ranks, tensor::DataType type) {
    PlanOptions options = job(ranks, 8);
    options.type = type;
    const GridJob search{model, options, {.pr = ranks}, shapes_of(model, options.batch)};
    std::set<std::string> tiles;
    for (const LayerOption& option :
         options_of(search, layer_of(search, 3), possible_layouts(search), FlopRate(1e12))) {
      if (option.split.kind != SplitKind::space_and_channel) continue;
      tiles.insert(to_text(option.split));
    }
    return tiles;
  };

  EXPECT_THAT(tiles_of(4, tensor::DataType::f32),
              ElementsAre("height=2 channel=2", "height=2 filter=2"));
  EXPECT_THAT(tiles_of(8, tensor::DataType::f32),
              ElementsAre("height=2 channel=4", "height=2 filter=4"));
  EXPECT_THAT(tiles_of(3, tensor::DataType::f32), ElementsAre());
  EXPECT_THAT(tiles_of(4, tensor::DataType::bf16), ElementsAre()) << "there are no kernels";
}

// By the split of a layer with 36,864 weights, on two replicas of two ranks.
std::map<std::string, std::uint64_t> elements_of_splits(PlanOptions options) {
  const Model model = chain();
  const GridJob search{model, options, {.pr = 2, .pc = 2}, shapes_of(model, options.batch)};
  std::map<std::string, std::uint64_t> elements;
  for (const LayerOption& option :
       options_of(search, layer_of(search, 3), possible_layouts(search), FlopRate(1e12))) {
    elements[to_text(option.split)] = option.elements;
  }
  return elements;
}

TEST(PlanSearchTest, CountsTheShareOfADividedOptimizer) {
  constexpr std::uint64_t weights = 64 * 64 * 9;
  PlanOptions options = job(4, 8);
  options.optimizer_elements = 2;
  const auto whole = elements_of_splits(options);
  options.divides_optimizer = true;
  const auto shared = elements_of_splits(options);
  const auto saved = [&](const std::string& split) { return whole.at(split) - shared.at(split); };

  EXPECT_EQ(saved("sample"), 2 * (weights - weights / 4));
  EXPECT_EQ(saved("replica"), 2 * (weights - weights / 2));
  EXPECT_EQ(saved("height=2 width=1"), 2 * (weights - weights / 4));
  EXPECT_EQ(saved("channel=1 filter=2"), 2 * (weights / 2 - weights / 4));
}

TEST(PlanSearchTest, FindsTheBestWithinMemory) {
  EXPECT_GT(expect_best_within_memory(chain(), job(4, 2, 1e-3), 1e12), 3);
  EXPECT_GT(expect_best_within_memory(residual(), job(4, 2, 1e-3), 1e12), 3);
}

TEST(PlanSearchTest, FindsTheBestOfAllSplitsOfAChain) {
  for (const double flops : {1e9, 1e11, 1e13}) {
    expect_best_of_all(chain(), job(4, 8), flops);
    expect_best_of_all(chain(), job(4, 2), flops);
    expect_best_of_all(chain(), job(2, 1), flops);
  }
}

TEST(PlanSearchTest, FindsTheBestOfAllSplitsOfResidualBlocks) {
  for (const double flops : {1e10, 1e13}) {
    expect_best_of_all(residual(), job(4, 8), flops);
    expect_best_of_all(residual(), job(4, 1), flops);
  }
}

TEST(PlanSearchTest, FindsItForAnyLink) {
  for (const double alpha : {0.0, 1e-6, 1e-3}) {
    for (const double bandwidth : {1e7, 1e12}) {
      expect_best_of_all(chain(), job(4, 4, alpha, bandwidth), 1e10);
      expect_best_of_all(residual(), job(4, 2, alpha, bandwidth), 1e11);
    }
  }
}

TEST(PlanSearchTest, FindsItOnTwoLevels) {
  PlanOptions options = job(4, 2);
  options.ranks_per_node = 2;
  options.node = {.alpha_seconds = 1e-7, .bandwidth = 1e11};
  expect_best_of_all(chain(), options, 1e11);
  expect_best_of_all(residual(), options, 1e11);
}

// Training refuses micro-batches without samples.
TEST(PlanSearchTest, EveryReplicaHasSamplesForItsMicroBatches) {
  const FlopRate costs(1e12);
  const PlanOptions options{.ranks = 8, .batch = 16, .micro_batches = 4};
  const std::vector<BestPlan> plans = best_plans(chain(), options, costs);
  ASSERT_FALSE(plans.empty());
  for (const BestPlan& plan : plans) EXPECT_LE(plan.grid.pc, 4);
  EXPECT_THROW((void)best_plans(chain(), {.ranks = 8, .batch = 16, .micro_batches = 17}, costs),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::plan_search_test
