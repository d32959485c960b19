// The planner's parts: layouts, the search for the best splits, and its memory.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/redistribution.hpp>

#include "config/grid_choice.hpp"
#include "executor/graph.hpp"
#include "executor/lowering.hpp"
#include "grid/layout.hpp"
#include "layers/layer_type.hpp"
#include "model/described.hpp"
#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"
#include "plan/layout_search.hpp"

namespace rondo::train::plan_search_test {
namespace {

using testing::ElementsAre;

// The search for the best splits against all splits there are, on networks small enough for that.

constexpr double rounding = 1e-9;  // relative, of sums in another order

ConvolutionLayer convolution(std::int64_t filters, std::int64_t kernel = 3,
                             std::int64_t stride = 1) {
  return {.filters = filters, .kernel = kernel, .stride = stride, .padding = kernel / 2};
}

Model chain() {
  return {.name = "chain",
          .input = {1, 16, 16, 3},
          .classes = 64,
          .layers = {{"conv1", convolution(32, 5), {0}},
                     {"pool", PoolingLayer{}, {1}},
                     {"conv2", convolution(64), {2}},
                     {"conv3", convolution(64), {3}},
                     {"fc", FullyConnectedLayer{.outputs = 64}, {4}}}};
}

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

PlanOptions job(int ranks, std::int64_t batch, double alpha = 1e-5, double bandwidth = 1e9) {
  const LinkCost link{.alpha_seconds = alpha, .bandwidth = bandwidth};
  return {.ranks = ranks, .batch = batch, .fabric = link, .node = link};
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
      Cost after{cost.seconds + option.compute.total() + option.exchange,
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
      clock += (layer.option->exchange + layer.moved) / 2 + layer.option->compute.forward;
    }
    double network = 0.0;
    for (std::size_t i = chosen_.size(); i-- > 0;) {
      const LayerOption& option = *chosen_[i].option;
      clock += option.compute.backward_weights;
      if (option.reduction > 0.0) network = std::max(network, clock) + option.reduction;
      clock += option.compute.backward_data + (option.exchange + chosen_[i].moved) / 2;
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
      return messages_seconds(redistribution_of(from, onto, extents, job_.grid), job_.replica(),
                              job_.options);
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
    const std::optional<FittingLayouts> found = search();
    EXPECT_EQ(found.has_value(), std::isfinite(least)) << bytes;
    if (!found) break;
    EXPECT_LE(4 * found->elements, bytes);
    EXPECT_NEAR(found->layouts.seconds, least, rounding * least) << bytes;
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

// The planner's layouts are the partitions that ranks train with, without their maps.

struct Pair {
  ValueLayout layout;
  Partition partition;
};

// Everything that a value can be on a grid, chains of stationary-W layers included.
std::vector<Pair> pairs_on(const tensor::Shape& extents, const ProcessGrid& grid) {
  std::vector<Pair> pairs = {
      {{.kind = SplitKind::sample}, by_sample(extents, grid.ranks())},
      {{.kind = SplitKind::replica}, by_replica(extents, grid)},
      {{.kind = SplitKind::channel}, by_channel(extents, grid)},
  };
  for (int d = 1; d <= grid.pr; ++d) {
    if (grid.pr % d != 0) continue;
    const int e = grid.pr / d;
    pairs.push_back({{.kind = SplitKind::space, .h = d, .w = e}, by_space(extents, grid, d, e)});
    const Partition once = output_of(by_channel(extents, grid), {d, e}, extents);
    pairs.push_back({turned({.kind = SplitKind::channel}, {d, e}), once});
    pairs.push_back({turned(turned({.kind = SplitKind::channel}, {d, e}), {d, e}),
                     output_of(once, {d, e}, extents)});
    const ValueLayout tiles{.kind = SplitKind::space_and_channel, .h = d};
    const Partition in_order = on_grid(extents, grid, {.h = d, .c = e});
    pairs.push_back({tiles, in_order});
    pairs.push_back({turned(tiles, {e, 1}), output_of(in_order, {e, 1}, extents)});
    if (e % 2 != 0) continue;
    pairs.push_back({turned(tiles, {2, e / 2}), output_of(in_order, {2, e / 2}, extents)});
  }
  return pairs;
}

const std::vector<ProcessGrid> grids = {{1, 3}, {2, 2}, {3, 1}, {4, 2}, {6, 1}, {8, 1}};
const std::vector<tensor::Shape> shapes = {{16, 8, 8, 32}, {13, 7, 9, 11}, {2, 6, 6, 5}};

TEST(PlanLayoutsTest, HoldWhatThePartitionHolds) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) {
      for (const Pair& pair : pairs_on(shape, grid)) {
        for (int rank = 0; rank < grid.ranks(); ++rank) {
          EXPECT_EQ(box_of(pair.layout, shape, grid, rank), pair.partition.box_of(rank));
        }
      }
    }
  }
}

TEST(PlanLayoutsTest, KnowTheLargestBox) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) {
      for (const Pair& pair : pairs_on(shape, grid)) {
        std::int64_t largest = 0;
        for (const Box& box : pair.partition.boxes()) largest = std::max(largest, box.size());
        EXPECT_EQ(largest_box(pair.layout, shape, grid).size(), largest);
      }
    }
  }
}

// Of the ranks of the last replica: it has most samples, and others may meet other blocks.
TEST(PlanLayoutsTest, ReceiveWhatRedistributionsReceive) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) {
      const std::vector<Pair> pairs = pairs_on(shape, grid);
      for (const Pair& from : pairs) {
        for (const Pair& to : pairs) {
          Messages most;
          for (int rank = grid.rank_at(grid.pc - 1, 0); rank < grid.ranks(); ++rank) {
            const Redistribution moves = redistribution(from.partition, to.partition, rank);
            most.elements = std::max(most.elements, moves.elements_received());
            most.count = std::max(most.count, static_cast<std::int64_t>(moves.receives.size()));
          }
          const Messages said = redistribution_of(from.layout, to.layout, shape, grid);
          EXPECT_EQ(said.elements, most.elements);
          EXPECT_EQ(said.count, most.count);
        }
      }
    }
  }
}

// What the planner counts for the rank that receives most, by a formula that is as fast on a
// thousand ranks as on two, against LayerType::traffic(), which goes through all ranks.

/// Reads its input behind a convolution, so that it has a gradient; followed by another layer.
Model model_with(Experiment::Layer layer) {
  if (layer.kind == "add" || layer.kind == "concat") layer.with = "input";
  return make_described_model({.name = "custom",
                               .input = {8, 8, 32},
                               .classes = 64,
                               .layers = {{.kind = "convolution", .filters = 32, .kernel = 1},
                                          std::move(layer),
                                          {.kind = "fully_connected", .outputs = 64}}});
}

/// One element takes one second, and a message nothing, so that seconds count elements.
PlanOptions seconds_count_elements(int ranks, std::int64_t batch) {
  PlanOptions options = job(ranks, batch, 0.0, element_bytes);
  options.paths = transport::AllreducePaths("ring:0-max");
  return options;
}

/// Compares every way in which layer `index` can run. Returns how many of them send something.
int compare_traffic(const Model& model, std::size_t index, ProcessGrid grid) {
  const PlanOptions options = seconds_count_elements(grid.ranks(), 8);
  const GridJob all{
      .model = model, .options = options, .grid = grid, .shapes = shapes_of(model, options.batch)};
  const JobLayer layer = layer_of(all, index);
  const std::vector<ValueLayout> layouts = possible_layouts(all);
  const ProcessGrid replica{.pr = grid.pr};
  const auto partition = [&](int layout, const tensor::Shape& value) {
    return partition_of(layouts[static_cast<std::size_t>(layout)], value.with_n(value.n / grid.pc),
                        replica);
  };
  int sending = 0;
  for (const LayerOption& option : options_of(all, layer, layouts, FlopRate(1e9))) {
    const NodeLayout layout{.split = option.split,
                            .x = partition(option.x, layer.x),
                            .y = partition(option.y, layer.y)};
    const std::uint64_t sent = static_cast<std::uint64_t>(grid.pc) *
                               layer.spec.kind->traffic(layout, layer.input_gradient).elements();
    const double planned = option.exchange * grid.ranks();
    SCOPED_TRACE(layer.spec.kind->text() + " by " + to_text(option.split));
    // In more than two parts those at the edges receive less than those between.
    if (option.split.h <= 2 && option.split.w <= 2) {
      EXPECT_EQ(planned, static_cast<double>(sent));
    } else {
      EXPECT_GE(planned, static_cast<double>(sent));
    }
    sending += sent > 0 ? 1 : 0;
  }
  return sending;
}

TEST(PlanTrafficTest, ThePlannerCountsWhatLayersSend) {
  std::set<std::string> silent;
  for (const DescribedKind& kind : described_kinds()) {
    const Model model =
        model_with({.kind = std::string(kind.name), .filters = 64, .outputs = 64, .kernel = 3});
    int sending = 0;
    for (const ProcessGrid grid : {ProcessGrid{.pr = 2}, {.pr = 4}, {.pr = 2, .pc = 2}}) {
      sending += compare_traffic(model, 1, grid);
    }
    if (sending == 0) silent.emplace(kind.name);
  }
  EXPECT_THAT(silent, ElementsAre("activation", "add", "average_pooling", "batch_norm", "concat",
                                  "dropout", "max_pooling"));
}

// The input has no gradient, and windows overlap.
TEST(PlanTrafficTest, ThePlannerCountsWhatTheFirstLayerSends) {
  for (const ProcessGrid grid : {ProcessGrid{.pr = 2}, {.pr = 4}, {.pr = 2, .pc = 2}}) {
    EXPECT_GT(compare_traffic(chain(), 0, grid), 0);
    const Model pools =
        model_with({.kind = "average_pooling", .window = 3, .stride = 1, .padding = 1});
    EXPECT_GT(compare_traffic(pools, 1, grid), 0);
  }
}

// Backward of a pooling sends gradients of its halo home: one row or column, whatever the stride.
TEST(PlanTrafficTest, ThePlannerCountsHalosOfAPoolingTwice) {
  const Model model = model_with({.kind = "max_pooling", .window = 3, .stride = 2, .padding = 1});
  const PlanOptions options = seconds_count_elements(4, 8);
  const GridJob job{model, options, {.pr = 4}, shapes_of(model, options.batch)};
  const JobLayer pool = layer_of(job, 1);
  const double row = 8 * 8 * 32;  // of 8 samples; a column is as long
  EXPECT_EQ(exchange_seconds(job, pool, {.kind = SplitKind::space, .h = 4}), 2 * row);
  // Half a row, half a column, and the pixel in the corner.
  const double both = row + 8 * 32;
  EXPECT_EQ(exchange_seconds(job, pool, {.kind = SplitKind::space, .h = 2, .w = 2}), 2 * both);
}

// The memory of a plan against what the executor of a rank makes room for.

// Elements of every value as the first replica's rank at `position` holds it.
std::vector<std::int64_t> sizes_on(const Lowering& lowering, int position) {
  std::vector<std::int64_t> sizes;
  for (const Partition& value : lowering.values) sizes.push_back(value.box_of(position).size());
  return sizes;
}

// All values and gradients, of the rank that holds most.
std::int64_t activation_elements(const Model& model, const BestPlan& plan, std::int64_t batch) {
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
std::int64_t parameter_elements(const Model& model, const BestPlan& plan) {
  std::int64_t elements = 0;
  for (const ParameterBlock& block : layout_of(model).blocks) {
    const auto layer = std::ranges::find(plan.layers, block.name, &BestLayer::name);
    const std::int64_t parts = layer == plan.layers.end() ? 1 : layer->split.channels.ranks();
    elements += 3 * ((static_cast<std::int64_t>(block.size) + parts - 1) / parts);
  }
  return elements;
}

void expect_room(const Model& model, const PlanOptions& options, double flops) {
  for (const BestPlan& plan : best_plans(model, options, FlopRate(flops))) {
    const auto planned = static_cast<std::int64_t>(plan.bytes_per_rank / 4);
    EXPECT_GE(planned - parameter_elements(model, plan),
              activation_elements(model, plan, options.batch))
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

// What the last layer reads of a replica is more than any layer writes on one.
TEST(PlanMemoryTest, APlanHasRoomForGradientsOfRedistributedValues) {
  const Model model = {.name = "wide",
                       .input = {1, 8, 8, 3},
                       .classes = 128,
                       .layers = {{"conv", ConvolutionLayer{.filters = 16}, {0}},
                                  {"fc", FullyConnectedLayer{.outputs = 128}, {1}}}};
  expect_room(model, {.ranks = 64, .batch = 64}, 1e9);
}

}  // namespace
}  // namespace rondo::train::plan_search_test
