// A model as the ranks of a replica run it together. Lowering puts a change of layout wherever a
// layer reads a value otherwise than it was written. From the lowered model follows, without
// running it, what a rank holds of the parameters, what ranks send, and what kernels allocate.

#include "executor/lowering.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/train/partition.hpp>
#include <rondo/train/redistribution.hpp>

#include "layers/split_kernels.hpp"

namespace rondo::train {
namespace {

[[noreturn]] void refuse_split(const LayerSpec& layer, const std::string& why) {
  throw std::invalid_argument("layer " + layer.name + ": " + why);
}

class Lowerer {
 public:
  Lowerer(const Model& model, const std::vector<LayerSplit>& splits, int ranks, std::int64_t images)
      : model_(model),
        splits_(splits),
        grid_{.pr = ranks, .pc = 1},
        shapes_(shapes_of(model, images)) {
    if (splits.size() == model.layers.size()) return;
    throw std::invalid_argument("a model of " + std::to_string(model.layers.size()) +
                                " layers needs as many splits, not " +
                                std::to_string(splits.size()));
  }

  Lowering lower() {
    begin();
    for (std::size_t i = 0; i < model_.layers.size(); ++i) add_layer(i);
    end();
    return std::move(result_);
  }

 private:
  // The first layer that reads the input decides how it lies.
  void begin() {
    ValueLayout input = {.kind = SplitKind::sample};
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      if (model_.layers[i].inputs[0] != 0) continue;
      input = wanted(i, input);
      break;
    }
    // The loader reads only what this layout says, so the first layout of the input costs no
    // exchange.
    result_.values.push_back(partition_of(input, shapes_[0], grid_));
    written_.push_back({.value = 0, .layout = input});
  }

  void add_layer(std::size_t i) {
    const LayerSpec& layer = model_.layers[i];
    const ValueLayout x = wanted(i, written_[layer.inputs[0]].layout);
    const ValueLayout y = layout_written_by(layer, splits_[i], x);
    const Partition as = partition_of(x, shapes_[layer.inputs[0]], grid_);
    GraphNode node = node_of(layer, i);
    for (const ValueId input : layer.inputs) {
      node.inputs.push_back(read(written_[input].value, partition_of(x, shapes_[input], grid_)));
    }
    const ValueId value =
        add(std::move(node), {splits_[i], as, partition_of(y, shapes_[i + 1], grid_)});
    written_.push_back({.value = value, .layout = y});
  }

  void end() {
    const ValueId last = written_.back().value;
    const Partition& logits = result_.values[last];
    // The loss needs whole rows of logits: of different images on every rank, or of all on each of
    // them.
    const bool by_images = logits.parts() == Parts{.n = logits.ranks()};
    if (by_images || logits.blocks() == 1) return;
    static_cast<void>(read(last, replicated(logits.extents(), grid_.pr)));
  }

  // The value in the layout `as`, moved there if it lies otherwise.
  ValueId read(ValueId value, const Partition& as) {
    if (result_.values[value] == as) return value;
    for (std::size_t i = 0; i < result_.graph.nodes.size(); ++i) {
      const GraphNode& node = result_.graph.nodes[i];
      // Another reader has asked for the same layout: one copy serves both.
      if (!node.layer && node.inputs[0] == value && result_.layouts[i].y == as) return i + 1;
    }
    return add({.inputs = {value}}, {{}, result_.values[value], as});
  }

  ValueId add(GraphNode node, NodeLayout layout) {
    result_.values.push_back(layout.y);
    result_.graph.nodes.push_back(std::move(node));
    result_.layouts.push_back(std::move(layout));
    return result_.graph.nodes.size();
  }

  // How layer i reads its input, which lies as `now`.
  ValueLayout wanted(std::size_t i, const ValueLayout& now) const {
    const LayerSpec& layer = model_.layers[i];
    if (has_weights(layer)) check(layer, splits_[i]);
    return layout_read_by(layer, splits_[i], now);
  }

  void check(const LayerSpec& layer, const LayerSplit& split) const {
    if (cuts_space(split.kind) && is_fully_connected(layer)) {
      refuse_split(layer, "a fully connected layer cannot be split in space");
    }
    if (cuts_channels(split.kind) && layer.kind->traits().whole_channels) {
      refuse_split(layer,
                   "a convolution in groups cannot be split by channel; split it by sample, by "
                   "rows and columns, or not at all");
    }
    const bool cuts = cuts_space(split.kind) || cuts_channels(split.kind);
    if (!cuts || split.ranks() == grid_.pr) return;
    refuse_split(layer, "a split in " + factors_of(split) + " parts does not give each of " +
                            std::to_string(grid_.pr) + " ranks of a replica one");
  }

  static std::string factors_of(const LayerSplit& split) {
    const std::string space = std::to_string(split.h) + " x " + std::to_string(split.w);
    const std::string channels =
        std::to_string(split.channels.channels) + " x " + std::to_string(split.channels.filters);
    if (split.kind == SplitKind::space_and_channel) return space + " x " + channels;
    return split.kind == SplitKind::space ? space : channels;
  }

  const Model& model_;
  const std::vector<LayerSplit>& splits_;
  ProcessGrid grid_;
  std::vector<tensor::Shape> shapes_;
  // Where each value of the model is as it was written, and how it lies there.
  struct Written {
    ValueId value = 0;
    ValueLayout layout = {};
  };
  std::vector<Written> written_;
  Lowering result_;
};

// A program's own layer may have parameters of other shapes than those that slice() describes.
void check_cut(const Parameter& parameter, const std::vector<Range>& ranges) {
  bool fits = ranges.size() <= parameter.shape.size();
  for (std::size_t i = 0; fits && i < ranges.size(); ++i) {
    fits = ranges[i].first >= 0 && ranges[i].last <= parameter.shape[i];
  }
  if (fits) return;
  throw std::invalid_argument("parameter \"" + parameter.name +
                              "\" cannot be cut as LayerType::slice() of its layer says; "
                              "override it for this grid");
}

// Vectors (biases, scales) are cut along their one dimension, weights along the first two: rows are
// filters or outputs, columns are channels or inputs.
void cut(Parameter& parameter, const ParameterSlice& slice) {
  const bool vector = parameter.shape.size() == 1;
  const std::vector<Range> ranges =
      vector ? std::vector<Range>{slice.elements} : std::vector<Range>{slice.rows, slice.columns};
  check_cut(parameter, ranges);
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
      const NodeLayout& layout = lowering.layouts[node];
      const bool whole = !layout.by_channel() && layout.x.parts().c == 1 && layout.y.parts().c == 1;
      slices_.push_back(whole ? std::nullopt
                              : std::optional(model.layers[*layer].kind->slice(layout, rank)));
    }
  }

  void cut_all(std::vector<Parameter>& parameters, std::size_t& count) const {
    count = 0;
    for (Parameter& parameter : parameters) {
      if (const auto& slice = slices_[index_of(parameter.layer())]) cut(parameter, *slice);
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
  // In the model's order, which lowering keeps; none for a layer whose parameters a rank holds
  // whole.
  std::vector<std::optional<ParameterSlice>> slices_;
};

// A change of layout sends what ranks need and do not hold, and the gradient the opposite way.
LayerTraffic of_change(const NodeLayout& layout, bool input_gradient) {
  const auto elements = [](const Partition& from, const Partition& to) {
    return static_cast<std::uint64_t>(elements_moved(from, to));
  };
  return {.forward = elements(layout.x, layout.y),
          .backward = input_gradient ? elements(layout.y, layout.x) : 0};
}

}  // namespace

Lowering lower(const Model& model, const std::vector<LayerSplit>& splits, int ranks,
               std::int64_t images) {
  return Lowerer(model, splits, ranks, images).lower();
}

// The names and their order are the whole model's. Offsets are counted anew, for slices are
// smaller.
ParameterLayout layout_of(const Model& model, const Lowering& lowering, int rank) {
  ParameterLayout layout = layout_of(model);
  const Slicer slicer(model, lowering, rank);
  slicer.cut_all(layout.parameters, layout.parameter_count);
  slicer.cut_all(layout.statistics, layout.statistic_count);
  std::size_t next = 0;
  for (ParameterBlock& block : layout.blocks) {
    block.offset = next < layout.parameters.size() ? layout.parameters[next].offset : 0;
    block.size = 0;
    for (; next < layout.parameters.size(); ++next) {
      const Parameter& parameter = layout.parameters[next];
      if (parameter.layer() != block.name) break;
      block.size += parameter.size();
    }
  }
  return layout;
}

ParameterLayout layout_of(const Model& model, const std::vector<LayerSplit>& splits, int ranks,
                          int rank) {
  return layout_of(model, lower(model, splits, ranks, 1), rank);
}

// The ranks of a replica hold other samples or pixels where the layer's input is cut along them,
// and other parameters where channels are cut; where nothing is cut, all compute the same. Blocks
// of channels are dealt out to positions one after another, in each tile alike.
std::vector<int> slices_in_replica(const Model& model, const Lowering& lowering, int ranks) {
  const std::vector<ParameterBlock> blocks = layout_of(model).blocks;
  std::vector<int> slices;
  for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
    const auto layer = lowering.graph.nodes[node].layer;
    // Blocks are in the order of the layers that learn, which lowering keeps.
    if (!layer || slices.size() == blocks.size()) continue;
    if (model.layers[*layer].name != blocks[slices.size()].name) continue;
    const Parts& parts = lowering.layouts[node].x.parts();
    slices.push_back(parts.n * parts.h * parts.w > 1 ? parts.c : ranks);
  }
  return slices;
}

std::vector<int> slices_in_replica(const Model& model, const std::vector<LayerSplit>& splits,
                                   int ranks) {
  return slices_in_replica(model, lower(model, splits, ranks, 1), ranks);
}

// A change of layout belongs to the layer that asks for it: the next layer in the order of the
// graph.
std::vector<LayerTraffic> traffic_of(const Model& model, const Lowering& lowering) {
  std::vector<LayerTraffic> layers(model.layers.size());
  std::size_t layer = 0;  // that the next node belongs to
  for (std::size_t i = 0; i < lowering.graph.nodes.size(); ++i) {
    const GraphNode& node = lowering.graph.nodes[i];
    const bool input_gradient = has_gradient(lowering.graph, node.inputs[0]);
    const NodeLayout& layout = lowering.layouts[i];
    const LayerTraffic traffic =
        node.layer ? model.layers[*node.layer].kind->traffic(layout, input_gradient)
                   : of_change(layout, input_gradient);
    LayerTraffic& sum = layers[node.layer.value_or(std::min(layer, layers.size() - 1))];
    sum.forward += traffic.forward;
    sum.backward += traffic.backward;
    sum.sums += traffic.sums;
    if (node.layer) layer = *node.layer + 1;
  }
  return layers;
}

std::vector<std::uint64_t> activation_bytes(const Model& model,
                                            const std::vector<LayerSplit>& splits, ProcessGrid grid,
                                            std::int64_t images, tensor::DataType type) {
  // Shares are of two sizes at most, and to lay a large model out takes a while.
  std::map<std::int64_t, std::uint64_t> replicas_with;
  for (int replica = 0; replica < grid.pc; ++replica) {
    ++replicas_with[even_range(images, grid.pc, replica).size()];
  }
  std::vector<std::uint64_t> bytes(model.layers.size());
  for (const auto& [own, replicas] : replicas_with) {
    const std::vector<LayerTraffic> layers = traffic_of(model, lower(model, splits, grid.pr, own));
    for (std::size_t i = 0; i < layers.size(); ++i) bytes[i] += replicas * layers[i].bytes(type);
  }
  return bytes;
}

// A ring allreduce over g ranks sends 2 (g-1)/g of the slice from each of them, so 2 (g-1) slices.
std::vector<std::uint64_t> gradient_elements(const Model& model,
                                             const std::vector<LayerSplit>& splits,
                                             ProcessGrid grid) {
  const Lowering lowering = lower(model, splits, grid.pr, 1);
  const std::vector<int> slices = slices_in_replica(model, lowering, grid.pr);
  std::vector<std::uint64_t> elements(slices.size());
  for (int position = 0; position < grid.pr; ++position) {
    const ParameterLayout held = layout_of(model, lowering, position);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (position >= slices[i]) continue;  // a slice that an earlier position holds, too
      const int holders = grid.ranks() / slices[i];
      elements[i] += 2 * static_cast<std::uint64_t>(holders - 1) * held.blocks[i].size;
    }
  }
  return elements;
}

tensor::KernelMemory memory_of_node(KernelMemories& kernels, const Model& model,
                                    const Lowering& lowering, std::size_t node, int rank,
                                    BatchNormScope statistics, tensor::DataType type) {
  const GraphNode& at = lowering.graph.nodes[node];
  const NodeLayout& layout = lowering.layouts[node];
  if (!at.layer) return {.own = redistribution_bytes(layout.x, layout.y, rank, type)};
  return model.layers[*at.layer].kind->memory(
      {.kernels = kernels,
       .layout = layout,
       .rank = rank,
       .input_gradient = has_gradient(lowering.graph, at.inputs[0]),
       .statistics = statistics,
       .type = type});
}

}  // namespace rondo::train
