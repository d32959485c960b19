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

Slice slice_of(const LayerSpec& layer, const GridLayer& layout, int rank) {
  const Box x = layout.x.box_of(rank);
  const Box y = layout.y.box_of(rank);
  if (layout.split.kind == SplitKind::channel) {
    if (std::holds_alternative<ConvolutionLayer>(layer.kind)) {
      const ChannelGrid grid = layout.split.channels;
      return {.rows = partial_output(layout.x, grid, layout.y.extents(), rank).c,
              .columns = gathered_input(layout.x, grid, rank).c,
              .elements = y.c};
    }
    if (const auto* connected = std::get_if<FullyConnectedLayer>(&layer.kind)) {
      const Range outputs = even_range(connected->outputs, layout.x.ranks(), rank);
      return {outputs, {0, layout.x.extents().image()}, outputs};
    }
  }
  if (std::holds_alternative<FullyConnectedLayer>(layer.kind)) {
    return {{0, layout.y.extents().c}, {0, layout.x.extents().image()}, {0, layout.y.extents().c}};
  }
  return {y.c, x.c, y.c};
}

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
      slices_.push_back(slice_of(model.layers[*layer], lowering.layouts[node], rank));
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
