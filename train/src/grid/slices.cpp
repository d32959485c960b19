#include "grid/slices.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include <rondo/train/channel_grid.hpp>
#include <rondo/train/grid.hpp>

#include "model/layer_of.hpp"

namespace rondo::train {
namespace {

// What a rank holds of a layer: rows and columns of its weights, and elements of its vectors (the
// bias; all that batch norm learns and measures).
struct Slice {
  Range rows = {};
  Range columns = {};
  Range elements = {};
};

class SliceOf {
 public:
  SliceOf(const GridLayer& layout, int rank) : layout_(layout), rank_(rank) {}

  Slice operator()(const ConvolutionLayer& /*layer*/) const {
    if (!is_by_channel()) return by_channels();
    const ChannelGrid grid = layout_.split.channels;
    return {.rows = partial_output(layout_.x, grid, layout_.y.extents(), rank_).c,
            .columns = gathered_input(layout_.x, grid, rank_).c,
            .elements = layout_.y.box_of(rank_).c};
  }
  Slice operator()(const FullyConnectedLayer& layer) const {
    const Range inputs{0, layout_.x.extents().image()};
    const Range outputs = is_by_channel() ? even_range(layer.outputs, layout_.x.ranks(), rank_)
                                          : Range{0, layout_.y.extents().c};
    return {.rows = outputs, .columns = inputs, .elements = outputs};
  }
  Slice operator()(const BatchNormLayer& /*layer*/) const { return by_channels(); }
  // Poolings hold nothing.
  Slice operator()(const PoolingLayer& /*layer*/) const { return {}; }
  Slice operator()(const GlobalAveragePoolingLayer& /*layer*/) const { return {}; }

 private:
  [[nodiscard]] bool is_by_channel() const { return layout_.split.kind == SplitKind::channel; }

  // What goes with the channels of its input and output that lie here.
  [[nodiscard]] Slice by_channels() const {
    const Range y = layout_.y.box_of(rank_).c;
    return {.rows = y, .columns = layout_.x.box_of(rank_).c, .elements = y};
  }

  const GridLayer& layout_;
  int rank_;
};

void cut(Parameter& parameter, const Slice& slice) {
  const bool vector = parameter.shape.size() == 1;
  const std::vector<Range> ranges =
      vector ? std::vector<Range>{slice.elements} : std::vector<Range>{slice.rows, slice.columns};
  std::vector<std::int64_t> shape = parameter.shape;
  std::vector<std::int64_t> first(shape.size(), 0);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    shape[i] = ranges[i].size();
    first[i] = ranges[i].first;
  }
  if (shape == parameter.shape) return;
  parameter.whole = parameter.shape;
  parameter.shape = shape;
  parameter.first = first;
}

// The layers' names with their slices; a parameter's name begins with its layer's.
class Slicer {
 public:
  Slicer(const Model& model, const Lowering& lowering, int rank) : model_(model) {
    for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
      const auto layer = lowering.graph.nodes[node].layer;
      if (!layer) continue;
      const SliceOf slice_of(lowering.layouts[node], rank);
      slices_.push_back(std::visit(slice_of, model.layers[*layer].kind));
    }
  }

  void cut_all(std::vector<Parameter>& parameters, std::size_t& count) const {
    count = 0;
    for (Parameter& parameter : parameters) {
      cut(parameter, slices_[index_of(layer_of(parameter))]);
      parameter.offset = count;
      count += parameter.size();
    }
  }

 private:
  std::size_t index_of(const std::string& name) const {
    const auto found = std::ranges::find(model_.layers, name, &LayerSpec::name);
    return static_cast<std::size_t>(found - model_.layers.begin());
  }

  const Model& model_;
  std::vector<Slice> slices_;  // in the model's order, which lowering keeps
};

}  // namespace

ParameterLayout layout_of(const Model& model, const Lowering& lowering, int rank) {
  ParameterLayout layout = layout_of(model);
  const Slicer slicer(model, lowering, rank);
  slicer.cut_all(layout.parameters, layout.parameter_count);
  slicer.cut_all(layout.statistics, layout.statistic_count);
  std::size_t next = 0;
  for (ParameterGroup& group : layout.groups) {
    group.offset = next < layout.parameters.size() ? layout.parameters[next].offset : 0;
    group.size = 0;
    for (; next < layout.parameters.size(); ++next) {
      const Parameter& parameter = layout.parameters[next];
      if (layer_of(parameter) != group.name) break;
      group.size += parameter.size();
    }
  }
  return layout;
}

ParameterLayout layout_of(const Model& model, const std::vector<LayerSplit>& splits, int ranks,
                          int rank) {
  return layout_of(model, lower(model, splits, ranks, 1), rank);
}

std::vector<bool> adds_up_in_group(const Model& model, const std::vector<LayerSplit>& splits,
                                   int ranks) {
  const Lowering lowering = lower(model, splits, ranks, 1);
  const std::vector<ParameterGroup> groups = layout_of(model).groups;
  std::vector<bool> adds_up;
  for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
    const auto layer = lowering.graph.nodes[node].layer;
    if (!layer || adds_up.size() == groups.size()) continue;
    if (model.layers[*layer].name != groups[adds_up.size()].name) continue;
    const Parts& parts = lowering.layouts[node].x.parts();
    adds_up.push_back(parts.n * parts.h * parts.w > 1);
  }
  return adds_up;
}

}  // namespace rondo::train
