// The planner's counts for a plan, against what ranks do: the parts of arrays that they hold, the
// data that their layers send, and the memory that an executor makes room for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
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
#include "train/support/by_space.hpp"
#include "train/support/planned_job.hpp"

namespace rondo::train::plan_counts_test {
namespace {

using test::chain;
using test::job;
using testing::ElementsAre;

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

/// Calls check(grid, shape, pairs) for values on several grids.
template <class Check>
void for_each_value(Check check) {
  for (const ProcessGrid& grid : grids) {
    for (const tensor::Shape& shape : shapes) check(grid, shape, pairs_on(shape, grid));
  }
}

TEST(PlanLayoutsTest, HoldWhatThePartitionHoldsAndKnowTheLargestBox) {
  for_each_value([](const ProcessGrid& grid, const tensor::Shape& shape, const auto& pairs) {
    for (const Pair& pair : pairs) {
      std::int64_t largest = 0;
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        EXPECT_EQ(box_of(pair.layout, shape, grid, rank), pair.partition.box_of(rank));
        largest = std::max(largest, pair.partition.box_of(rank).size());
      }
      EXPECT_EQ(largest_box(pair.layout, shape, grid).size(), largest);
    }
  });
}

// Looks at the last replica's ranks: it has most samples, and others may meet other blocks.
TEST(PlanLayoutsTest, ReceiveWhatRedistributionsReceive) {
  for_each_value([](const ProcessGrid& grid, const tensor::Shape& shape, const auto& pairs) {
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
  });
}

// The planner's counts for the rank that receives most, by a formula that is as fast on a thousand
// ranks as on two, against LayerType::traffic(), which goes through all ranks.

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
    const double planned = option.exchange.seconds() * grid.ranks();
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
  EXPECT_EQ(exchanges_of(job, pool, {.kind = SplitKind::space, .h = 4}).seconds(), 2 * row);
  // Half a row, half a column, and the pixel in the corner.
  const double both = row + 8 * 32;
  EXPECT_EQ(exchanges_of(job, pool, {.kind = SplitKind::space, .h = 2, .w = 2}).seconds(),
            2 * both);
}

// Within a node each message takes the time of a core.
TEST(PlanTrafficTest, MessagesBetweenNodesAreUnderWayTogether) {
  PlanOptions options = job(8, 1, 0.25, element_bytes);
  options.ranks_per_node = 4;
  const Messages three{.count = 3, .elements = 1000};
  EXPECT_EQ(messages_cost(three, {.size = 8, .stride = 1}, options).seconds, 1000 + 0.25);
  EXPECT_EQ(messages_cost(three, {.size = 4, .stride = 1}, options).seconds, 1000 + 3 * 0.25);
  EXPECT_EQ(messages_cost({}, {.size = 8, .stride = 1}, options).seconds, 0.0);
}

// Rows in four parts on two nodes: only the two in the middle exchange between nodes.
TEST(PlanTrafficTest, HalosGoBetweenNodesOnlyWhereNeighboursAreOnOthers) {
  const Model model = model_with({.kind = "max_pooling", .window = 3, .stride = 1, .padding = 1});
  PlanOptions options = seconds_count_elements(4, 8);
  options.ranks_per_node = 2;
  const GridJob on_nodes{model, options, {.pr = 4}, shapes_of(model, options.batch)};
  const JobLayer pool = layer_of(on_nodes, 1);
  const LayerSplit rows{.kind = SplitKind::space, .h = 4};
  const auto seconds_if = [&](double node, double fabric, double port) {
    options.node = {.alpha_seconds = 0.0, .bandwidth = node};
    options.fabric = {.alpha_seconds = 0.0, .bandwidth = fabric};
    options.port_bandwidth = port;
    return exchanges_of(on_nodes, pool, rows).forward.seconds;
  };
  const double row = 8 * 8 * 32;  // of 8 samples
  constexpr double fast = 1e30;
  EXPECT_EQ(seconds_if(element_bytes, fast, 0.0), row);
  EXPECT_EQ(seconds_if(fast, element_bytes, 0.0), row);
  EXPECT_EQ(seconds_if(fast, fast, element_bytes), row);
}

// With three ranks each on nodes of four, only the first replica lies on one node; all replicas
// wait for those whose halos cross a border.
TEST(PlanTrafficTest, HalosOfReplicasOverTheBordersOfNodesAreNotThoseOfANode) {
  const Model model = model_with({.kind = "max_pooling", .window = 3, .stride = 1, .padding = 1});
  PlanOptions options = seconds_count_elements(12, 8);
  options.ranks_per_node = 4;
  options.node = {.alpha_seconds = 0.0, .bandwidth = 1e30};
  options.fabric = {.alpha_seconds = 1000.0, .bandwidth = element_bytes};
  const auto forward = [&](ProcessGrid grid) {
    const GridJob straddling{model, options, grid, shapes_of(model, options.batch)};
    return exchanges_of(straddling, layer_of(straddling, 1),
                        {.kind = SplitKind::space, .h = grid.pr})
        .forward.seconds;
  };
  EXPECT_LT(forward({.pr = 2, .pc = 6}), 1.0);
  EXPECT_LT(forward({.pr = 3, .pc = 1}), 1.0) << "there is no other replica";
  EXPECT_GE(forward({.pr = 3, .pc = 4}), 1000.0);
  // Two of its replicas receive a row of two samples each over the port of the second node.
  options.fabric = {.alpha_seconds = 0.0, .bandwidth = 1e30};
  options.port_bandwidth = element_bytes;
  EXPECT_EQ(forward({.pr = 3, .pc = 4}), 2 * (2 * 8 * 32));
}

// Both ranks of the first node receive from the other.
TEST(PlanTrafficTest, RanksOfANodeReceiveThroughItsPort) {
  PlanOptions options = job(4, 1, 0.25, element_bytes);
  options.ranks_per_node = 2;
  options.node = {.alpha_seconds = 0.5, .bandwidth = 2.0 * element_bytes};
  const std::vector<Received> received{{.near = {.count = 1, .elements = 100},  //
                                        .far = {.count = 2, .elements = 1000}},
                                       {.far = {.count = 1, .elements = 500}},
                                       {},
                                       {.near = {.count = 2, .elements = 400}}};
  EXPECT_EQ(received_cost(received, options).seconds, 0.25 + 1000);
  options.port_bandwidth = element_bytes;
  EXPECT_EQ(received_cost(received, options).seconds, 0.25 + 1500);
  EXPECT_EQ(received_cost(std::span(received).subspan(2), options).seconds, 2 * 0.5 + 200);
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
  const Lowering lowering = lower(model, plan.splits, plan.grid.pr, images);
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

// The last layer reads more of a replica's values than any layer writes on one rank.
TEST(PlanMemoryTest, APlanHasRoomForGradientsOfRedistributedValues) {
  const Model model = {.name = "wide",
                       .input = {1, 8, 8, 3},
                       .classes = 128,
                       .layers = {{"conv", ConvolutionLayer{.filters = 16}, {0}},
                                  {"fc", FullyConnectedLayer{.outputs = 128}, {1}}}};
  expect_room(model, {.ranks = 64, .batch = 64}, 1e9);
}

// A second for each parameter that a rank updates.
struct SlowUpdates final : ComputeCosts {
  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override {
    return FlopRate(1e3).seconds(work);
  }
  [[nodiscard]] double update_seconds(std::size_t parameters) const override {
    return static_cast<double>(parameters);
  }
};

// Splits by sample divide no update, by channel they do. Messages take almost no time beside it.
TEST(PlanCountsTest, TheUpdateIsThatOfWhatARankHolds) {
  const Model model = {.name = "two",
                       .input = {1, 2, 2, 64},
                       .classes = 64,
                       .layers = {{"a", ConvolutionLayer{.filters = 64}, {0}},
                                  {"b", ConvolutionLayer{.filters = 64}, {1}},
                                  {"mean", GlobalAveragePoolingLayer{}, {2}}}};
  const PlanOptions options = {.ranks = 4, .batch = 4};
  const auto parameters = static_cast<double>(layout_of(model).parameter_count);

  const std::vector<BestPlan> plans = best_plans(model, options, SlowUpdates());

  for (const BestPlan& plan : plans) {
    double held = 0.0;
    for (const BestLayer& layer : plan.layers) {
      const bool cut = layer.split.kind == SplitKind::channel;
      held += parameters / 2 / (cut ? plan.grid.pr : 1);
    }
    EXPECT_NEAR(plan.update_seconds, held, 1e-6 * parameters) << plan.grid.pr;
    EXPECT_GT(plan.overlapped_seconds, plan.update_seconds) << plan.grid.pr;
  }
  EXPECT_EQ(plans.back().grid.pr, 1) << "all ranks update everything";
  EXPECT_LT(plans.front().update_seconds, plans.back().update_seconds);
}

}  // namespace
}  // namespace rondo::train::plan_counts_test
